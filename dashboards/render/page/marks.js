// Annotations: dashed lines with a foot. Grafana keeps the drawing of them in its application.
const FOOT = 5;

export function drawMarks(config, marks) {
  config.addHook('draw', (plot) => {
    const { ctx, bbox } = plot;
    const [from, to] = [plot.scales.x.min, plot.scales.x.max];
    ctx.save();
    for (const { color, times } of marks) {
      ctx.strokeStyle = ctx.fillStyle = color;
      for (const time of times.filter((one) => one >= from && one <= to)) {
        const x = Math.round(plot.valToPos(time, 'x', true));
        ctx.setLineDash([5, 5]);
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.beginPath();
        ctx.moveTo(x - FOOT, bbox.top + bbox.height + FOOT);
        ctx.lineTo(x + FOOT, bbox.top + bbox.height + FOOT);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.fill();
      }
    }
    ctx.restore();
  });
}
