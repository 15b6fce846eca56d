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

// One component for each value of a panel, side by side or one below another.
function Repeated({ of: One, panel, data, width, height, theme, timeZone, arranged, shown }) {
  return (
    <VizRepeater
      source={data}
      getValues={() => reduced({ panel, data, theme, timeZone })}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      width={width}
      height={height}
      renderCounter={0}
      renderValue={({ value, width, height, ...place }) => (
        <One value={value.display} width={width} height={height} text={panel.options.text} theme={theme} {...shown(value, place)} />
      )}
      {...arranged}
    />
  );
}

function Numbers(props) {
  const { orientation, colorMode, graphMode, justifyMode, textMode } = props.panel.options;
  const looks = { colorMode, graphMode, justifyMode, textMode };
  return (
    <Repeated
      {...props}
      of={BigValue}
      arranged={{ orientation, autoGrid: true }}
      shown={(_, { alignmentFactors, count }) => ({ ...looks, alignmentFactors, count })}
    />
  );
}

function Bars(props) {
  const { displayMode, maxVizHeight, minVizHeight, namePlacement, showUnfilled, sizing, valueMode } = props.panel.options;
  const looks = { displayMode, namePlacement, showUnfilled, itemSpacing: BAR_SPACING, valueDisplayMode: valueMode };
  return (
    <Repeated
      {...props}
      of={BarGauge}
      arranged={{
        orientation: VizOrientation.Horizontal,
        itemSpacing: BAR_SPACING,
        minVizHeight,
        maxVizHeight: sizing === 'manual' ? maxVizHeight : undefined,
      }}
      shown={({ field, view, colIndex }, { alignmentFactors, orientation, count }) => ({
        ...looks,
        field,
        orientation,
        display: view?.getFieldDisplayProcessor(colIndex),
        alignmentFactors: count > 1 ? alignmentFactors : undefined,
      })}
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
