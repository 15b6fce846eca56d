// Draws window.rankscope.dashboard with Grafana's components, one box per panel where Grafana puts it.
import { createTheme, dateTime, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome, ToolbarButton } from '@grafana/ui';
import { Component } from 'react';
import { createRoot } from 'react-dom/client';
import icons from 'virtual:icons';

import { prepared } from './fields.js';
import { framesOf } from './frames.js';
import { Visualization } from './visualizations.jsx';
import { Header } from './header.jsx';
import { shown } from './report.js';

const CELL = { height: 30, gap: 8, columns: 24 };
const TIME_ZONE = 'utc';
const SETTLE_MILLISECONDS = 1000;
const PATIENCE_MILLISECONDS = 30_000;

// A page from a file may not fetch, so icons are in it.
const fetched = window.fetch;
window.fetch = (address, ...rest) => {
  const icon = /icons\/(.*\.svg)/.exec(String(address.url ?? address));
  return icon && icons[icon[1]]
    ? Promise.resolve(new Response(icons[icon[1]], { headers: { 'Content-Type': 'image/svg+xml' } }))
    : fetched(address, ...rest);
};

const errors = [];
// Browsers say so of any component that measures itself anew as it is drawn: it is drawn a frame later.
const HARMLESS = /^ResizeObserver loop/;
window.addEventListener('error', ({ message }) => HARMLESS.test(message) || errors.push(String(message)));
window.addEventListener('unhandledrejection', (event) => errors.push(String(event.reason)));

class Guard extends Component {
  state = { error: null };
  static getDerivedStateFromError(error) {
    return { error };
  }
  componentDidCatch(error) {
    errors.push(`${this.props.title}: ${error}`);
  }
  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}

function box(where, width) {
  const column = (width - CELL.gap * (CELL.columns - 1)) / CELL.columns;
  const across = (count) => count * column + (count - 1) * CELL.gap;
  const down = (count) => count * CELL.height + (count - 1) * CELL.gap;
  return {
    position: 'absolute',
    left: where.x * (column + CELL.gap),
    top: where.y * (CELL.height + CELL.gap),
    width: across(where.w),
    height: down(where.h),
  };
}

function Panel({ panel, data, place, context }) {
  if (panel.type === 'row') {
    return <div style={{ ...place, fontWeight: 500, fontSize: 16, paddingTop: 4 }}>{panel.title}</div>;
  }
  return (
    <div style={place}>
      <PanelChrome
        title={panel.title}
        description={panel.description}
        titleItems={panel.links.length > 0 && <ToolbarButton icon="external-link-alt" iconSize="md" aria-label="links" />}
        width={place.width}
        height={place.height}
      >
        {(width, height) => (
          <Guard title={panel.title}>
            <Visualization panel={panel} data={data} width={width} height={height} {...context} />
          </Guard>
        )}
      </PanelChrome>
    </div>
  );
}

const later = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Tables and legends measure themselves and draw once more; tables take longest.
async function settled(panels, data) {
  const tables = panels.filter(({ id, type }) => type === 'table' && data[id].some(({ length }) => length)).length;
  const drawn = () => [...document.querySelectorAll('[role=grid]')].filter((one) => one.querySelector('[role=gridcell]'));
  const end = Date.now() + PATIENCE_MILLISECONDS;
  while (drawn().length < tables && Date.now() < end) await later(100);
  if (drawn().length < tables) errors.push(`${drawn().length} of ${tables} tables were drawn`);
  await document.fonts.ready;
  await later(SETTLE_MILLISECONDS);
}

// Titles that are cut off are faults of the dashboard, at this width.
function cutTitles() {
  const titles = [...document.querySelectorAll('h2')].filter((title) => title.scrollWidth > title.clientWidth);
  const heads = [...document.querySelectorAll('[role="columnheader"]')].filter((head) => {
    const { left, right } = head.getBoundingClientRect();
    const texts = [...head.querySelectorAll('*')].filter((one) => one.textContent).map((one) => one.getBoundingClientRect());
    // Numbers' heads are pushed out of sight to the left.
    return texts.some((text) => text.left < left || text.right > right);
  });
  return [...titles, ...heads].map(({ textContent }) => `the title ${textContent} is cut off`);
}

async function fieldsOf(panels, { answers, step }, theme) {
  const data = {};
  for (const panel of panels) {
    try {
      data[panel.id] = await prepared(panel, framesOf(panel, answers[panel.id], step), theme, TIME_ZONE);
    } catch (error) {
      errors.push(`${panel.title}: ${error}`);
      data[panel.id] = [];
    }
  }
  return data;
}

function Page({ dashboard, data, variables, context }) {
  const inner = window.innerWidth - 2 * CELL.gap;
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <ThemeContext.Provider value={context.theme}>
      <GlobalStyles />
      <Header dashboard={dashboard} variables={variables} timeRange={context.timeRange} />
      <div style={{ position: 'relative', margin: `0 ${CELL.gap}px`, height: rows * (CELL.height + CELL.gap) }}>
        {dashboard.panels.map((panel) => (
          <Panel key={panel.id} panel={panel} data={data[panel.id]} place={box(panel.gridPos, inner)} context={context} />
        ))}
      </div>
    </ThemeContext.Provider>
  );
}

export async function draw({ dashboard, variables, marks, from, to, theme: mode, ...asked }) {
  const theme = createTheme({ colors: { mode } });
  const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: 'now', to: 'now' } };
  const context = { theme, timeRange, timeZone: TIME_ZONE, marks };
  const panels = dashboard.panels.filter(({ type }) => type !== 'row');
  const data = await fieldsOf(panels, asked, theme);
  document.body.style.margin = 0;
  createRoot(document.getElementById('root')).render(
    <Page dashboard={dashboard} data={data} variables={variables} context={context} />
  );
  await settled(panels, data);
  const said = panels.map((panel) => ({ title: panel.title, shown: shown(panel, data[panel.id]) }));
  return { errors: [...errors, ...cutTitles()], panels: said };
}
