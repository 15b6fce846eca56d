// A plot whose y axis is a row per name, for heat maps and state timelines: Grafana's application
// draws these on @grafana/ui's uPlot, and so does this page.
import { AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotConfigBuilder } from '@grafana/ui';

export function rowsConfig({ theme, timeRange, timeZone, count, ticks, names, up, draw }) {
  const config = new UPlotConfigBuilder(timeZone);
  const color = theme.colors.text.primary;
  config.addScale({
    scaleKey: 'x',
    isTime: true,
    orientation: ScaleOrientation.Horizontal,
    direction: ScaleDirection.Right,
    range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()],
  });
  config.addScale({
    scaleKey: 'y',
    isTime: false,
    orientation: ScaleOrientation.Vertical,
    direction: up ? ScaleDirection.Up : ScaleDirection.Down,
    range: () => [0, count],
  });
  config.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone, theme, color, grid: { show: false } });
  config.addAxis({
    scaleKey: 'y',
    placement: AxisPlacement.Left,
    theme,
    color,
    grid: { show: false },
    ticks: { show: false },
    splits: () => ticks,
    values: () => names,
  });
  config.addSeries({ scaleKey: 'y', pathBuilder: () => null, pointsBuilder: () => null, theme });
  config.addHook('draw', draw);
  return config;
}

// Pixels of a cell between two times and two rows.
export function cell(plot, from, to, low, high) {
  const clamp = (time) => Math.min(Math.max(time, plot.scales.x.min), plot.scales.x.max);
  const [left, right] = [clamp(from), clamp(to)].map((time) => plot.valToPos(time, 'x', true));
  const [one, other] = [low, high].map((row) => plot.valToPos(row, 'y', true));
  return [left, Math.min(one, other), right - left, Math.abs(one - other)];
}
