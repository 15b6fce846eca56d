// What Grafana's Prometheus data source makes of an answer: data frames.
// Its transforms are in grafana/grafana packages/grafana-prometheus/src/result_transformer.ts.
import { FieldType } from '@grafana/data';

const number = (text) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : parseFloat(text));
const milliseconds = (seconds) => seconds * 1000;
const timeField = (values) => ({ name: 'Time', type: FieldType.time, config: {}, values });

// A legend of labels in braces; without one, the labels themselves.
function nameOf(target, labels) {
  if (target.legendFormat !== '__auto') {
    return target.legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  const { __name__: metric = '', ...rest } = labels;
  const inside = Object.entries(rest).map(([label, value]) => `${label}="${value}"`);
  return inside.length ? `${metric}{${inside.join(', ')}}` : metric || target.expr;
}

function frameOfSeries(target, series, step) {
  const points = series.values ?? [series.value];
  const config = { displayNameFromDS: nameOf(target, series.metric), interval: step };
  const values = points.map(([, value]) => number(value));
  return {
    refId: target.refId,
    length: points.length,
    fields: [
      { ...timeField(points.map(([time]) => milliseconds(time))), config: { interval: step } },
      { name: 'Value', type: FieldType.number, labels: series.metric, config, values },
    ],
  };
}

function table(target, answer, several) {
  const labels = [...new Set(answer.flatMap((one) => Object.keys(one.metric)))].sort();
  return {
    refId: target.refId,
    length: answer.length,
    fields: [
      timeField(answer.map((one) => milliseconds(one.value[0]))),
      ...labels.map((name) => ({
        name,
        type: FieldType.string,
        config: { filterable: true },
        values: answer.map((one) => one.metric[name] ?? ''),
      })),
      {
        name: several ? `Value #${target.refId}` : 'Value',
        type: FieldType.number,
        config: {},
        values: answer.map((one) => number(one.value[1])),
      },
    ],
  };
}

// Prometheus' buckets count what is at most their bound: subtract the one below.
function buckets(target, answer) {
  const ordered = answer
    .filter((one) => one.metric.le !== undefined)
    .sort((one, other) => number(one.metric.le) - number(other.metric.le));
  const times = [...new Set(ordered.flatMap((one) => one.values.map(([time]) => time)))].sort((a, b) => a - b);
  const cumulative = ordered.map((one) => {
    const at = new Map(one.values.map(([time, value]) => [time, number(value)]));
    return times.map((time) => at.get(time) ?? 0);
  });
  return {
    refId: target.refId,
    length: times.length,
    fields: [
      timeField(times.map(milliseconds)),
      ...ordered.map((one, row) => ({
        name: one.metric.le,
        type: FieldType.number,
        config: { displayNameFromDS: one.metric.le },
        values: cumulative[row].map((value, column) => Math.max(0, value - (cumulative[row - 1]?.[column] ?? 0))),
      })),
    ],
  };
}

export function framesOf(panel, answers, step) {
  return panel.targets.flatMap((target, index) => {
    const answer = answers[index];
    if (!answer.length) return [];
    if (target.format === 'table') return [table(target, answer, panel.targets.length > 1)];
    if (target.format === 'heatmap') return [buckets(target, answer)];
    return answer.map((series) => frameOfSeries(target, series, step));
  });
}
