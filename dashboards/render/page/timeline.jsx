// State timeline: a row per series, a block per state, the states' names below.
import { getFieldDisplayName } from '@grafana/data';
import { UPlotChart, VizLayout, VizLegend } from '@grafana/ui';
import { useMemo } from 'react';

import { drawMarks } from './marks.js';
import { cell, rowsConfig } from './rows.js';

function* blocks(field, times, step) {
  let begun = 0;
  for (let index = 1; index <= times.length; index++) {
    const gap = index === times.length || times[index] - times[index - 1] > 1.5 * step;
    if (gap || field.values[index] !== field.values[begun]) {
      yield { value: field.values[begun], from: times[begun], to: gap ? times[index - 1] + step : times[index] };
      begun = index;
    }
  }
}

function states(panel) {
  return panel.fieldConfig.defaults.mappings.flatMap(({ options }) =>
    Object.values(options).map(({ text, color }) => ({ label: text, color, yAxis: 1 }))
  );
}

export function StateTimeline({ panel, data, width, height, theme, timeRange, timeZone, marks }) {
  const { rowHeight, legend } = panel.options;
  const { fillOpacity } = panel.fieldConfig.defaults.custom;
  const rows = data.map((frame) => ({ times: frame.fields[0].values, field: frame.fields[1], frame }));
  const config = useMemo(() => {
    const config = rowsConfig({
      theme,
      timeRange,
      timeZone,
      count: rows.length,
      ticks: rows.map((_, row) => row + 0.5),
      names: rows.map(({ field, frame }) => getFieldDisplayName(field, frame, data)),
      up: false,
      draw: (plot) => {
        plot.ctx.save();
        plot.ctx.globalAlpha = fillOpacity / 100;
        const margin = (1 - rowHeight) / 2;
        rows.forEach(({ times, field }, row) => {
          for (const { value, from, to } of blocks(field, times, field.config.interval)) {
            plot.ctx.fillStyle = field.display(value).color;
            plot.ctx.fillRect(...cell(plot, from, to, row + margin, row + 1 - margin));
          }
        });
        plot.ctx.restore();
      },
    });
    drawMarks(config, marks);
    return config;
  }, [width]);
  const times = rows[0].times;
  return (
    <VizLayout
      width={width}
      height={height}
      legend={
        <VizLayout.Legend placement={legend.placement}>
          <VizLegend items={states(panel)} displayMode={legend.displayMode} placement={legend.placement} readonly />
        </VizLayout.Legend>
      }
    >
      {(inside, below) => (
        <UPlotChart config={config} data={[times, times.map(() => null)]} width={inside} height={below} />
      )}
    </VizLayout>
  );
}
