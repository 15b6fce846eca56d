// Heat map of buckets; rows are buckets, named by their upper bound.
import { formattedValueToString, getValueFormat } from '@grafana/data';
import { UPlotChart } from '@grafana/ui';
import { interpolateBlues } from 'd3-scale-chromatic';
import { useMemo } from 'react';

import { cell, rowsConfig } from './rows.js';

const LEGEND_HEIGHT = 22;

export function Heatmap({ panel, data, width, height, theme, timeRange, timeZone }) {
  const { color, filterValues, yAxis } = panel.options;
  if (color.scheme !== 'Blues') throw new Error(`the colours ${color.scheme} are not here`);
  const [time, ...buckets] = data[0].fields;
  const format = getValueFormat(yAxis.unit);
  const most = Math.max(...buckets.flatMap(({ values }) => values.filter(Number.isFinite)), 1e-9);
  // Grafana turns the scheme round on a dark ground, so that few is near the ground's colour.
  const shade = (part) => interpolateBlues(theme.isDark ? 1 - part : part);
  const step = time.values.length > 1 ? time.values[1] - time.values[0] : 1000;
  const config = useMemo(() => {
    const names = buckets.map(({ name }) => (name === '+Inf' ? '+Inf' : formattedValueToString(format(Number(name)))));
    return rowsConfig({
      theme,
      timeRange,
      timeZone,
      count: buckets.length,
      ticks: buckets.map((_, row) => row + 1),
      names,
      up: true,
      draw: (plot) => {
        plot.ctx.save();
        buckets.forEach(({ values }, row) =>
          values.forEach((value, index) => {
            if (!(value > filterValues.le)) return;
            plot.ctx.fillStyle = shade((value / most) ** color.exponent);
            const [x, y, w, h] = cell(plot, time.values[index] - step, time.values[index], row, row + 1);
            plot.ctx.fillRect(x, y, Math.max(w - panel.options.cellGap, 1), h - panel.options.cellGap);
          })
        );
        plot.ctx.restore();
      },
    });
  }, [width]);
  const gradient = [0, 0.25, 0.5, 0.75, 1].map((part) => shade(part ** color.exponent)).join(', ');
  return (
    <div>
      <UPlotChart
        config={config}
        data={[time.values, time.values.map(() => null)]}
        width={width}
        height={height - LEGEND_HEIGHT}
      />
      <div style={{ display: 'flex', gap: 6, fontSize: 12, alignItems: 'center', height: LEGEND_HEIGHT, paddingLeft: 50 }}>
        0 <span style={{ width: 150, height: 8, background: `linear-gradient(90deg, ${gradient})` }} /> {most.toFixed(0)} steps
      </div>
    </div>
  );
}
