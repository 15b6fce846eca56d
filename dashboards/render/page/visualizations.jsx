// One component per kind of panel. The drawing is @grafana/ui's; only what Grafana keeps in its
// application (how options of a panel become properties) is written here.
import { FieldType, getDisplayValueAlignmentFactors, getFieldDisplayValues, VizOrientation } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

import { Heatmap } from './heatmap.jsx';
import { StateTimeline } from './timeline.jsx';
import { drawMarks } from './marks.js';

const BAR_SPACING = 10;

function Lines({ panel, data, width, height, timeRange, timeZone, marks }) {
  return (
    <TimeSeries
      frames={data}
      width={width}
      height={height}
      timeRange={timeRange}
      timeZone={timeZone}
      legend={panel.options.legend}
      options={panel.options}
    >
      {(config) => {
        drawMarks(config, marks);
        return null;
      }}
    </TimeSeries>
  );
}

const reduced = ({ panel, data, theme, timeZone }) =>
  getFieldDisplayValues({
    fieldConfig: panel.fieldConfig,
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text,
    theme,
    data,
    timeZone,
  });

function Numbers(props) {
  const { options } = props.panel;
  return (
    <VizRepeater
      source={props.data}
      getValues={() => reduced(props)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      width={props.width}
      height={props.height}
      orientation={options.orientation}
      autoGrid
      renderCounter={0}
      renderValue={({ value, width, height, alignmentFactors, count }) => (
        <BigValue
          value={value.display}
          count={count}
          width={width}
          height={height}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          text={options.text}
          alignmentFactors={alignmentFactors}
          theme={props.theme}
        />
      )}
    />
  );
}

function Bars(props) {
  const { options } = props.panel;
  return (
    <VizRepeater
      source={props.data}
      getValues={() => reduced(props)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      width={props.width}
      height={props.height}
      orientation={VizOrientation.Horizontal}
      itemSpacing={BAR_SPACING}
      minVizHeight={options.minVizHeight}
      maxVizHeight={options.sizing === 'manual' ? options.maxVizHeight : undefined}
      renderCounter={0}
      renderValue={({ value, width, height, alignmentFactors, orientation, count }) => (
        <BarGauge
          value={value.display}
          field={value.field}
          display={value.view?.getFieldDisplayProcessor(value.colIndex)}
          width={width}
          height={height}
          orientation={orientation}
          text={options.text}
          itemSpacing={BAR_SPACING}
          displayMode={options.displayMode}
          showUnfilled={options.showUnfilled}
          valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement}
          alignmentFactors={count > 1 ? alignmentFactors : undefined}
          theme={props.theme}
        />
      )}
    />
  );
}

function Rows({ panel, data, width, height, timeRange }) {
  return (
    <TableNG
      data={data[panel.options.frameIndex] ?? data[0]}
      width={width}
      height={height}
      noHeader={!panel.options.showHeader}
      cellHeight={panel.options.cellHeight}
      fieldConfig={panel.fieldConfig}
      timeRange={timeRange}
      sortBy={panel.options.sortBy}
      enableVirtualization={false}
    />
  );
}

const KINDS = {
  timeseries: Lines,
  stat: Numbers,
  bargauge: Bars,
  table: Rows,
  heatmap: Heatmap,
  'state-timeline': StateTimeline,
};

// A stat without data shows what is missing in its own place, as Grafana's does.
const SAYS_SO_ITSELF = new Set(['stat', 'bargauge']);

const empty = (data) => !data.some((frame) => frame.length && frame.fields.some(({ type }) => type !== FieldType.time));

export function Visualization(props) {
  const { panel, data, width, height } = props;
  const Kind = KINDS[panel.type];
  if (!Kind) throw new Error(`no component for ${panel.type}`);
  if (empty(data) && !SAYS_SO_ITSELF.has(panel.type)) {
    const middle = { width, height, display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center' };
    return <div style={middle}>{panel.fieldConfig.defaults.noValue}</div>;
  }
  return <Kind {...props} />;
}
