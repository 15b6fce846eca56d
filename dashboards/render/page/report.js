// What a panel says in words, to be read without looking: names and last values as they are shown.
import { formattedValueToString, getFieldDisplayName } from '@grafana/data';

const MOST = 4;

function lastOf(field) {
  const value = [...field.values].reverse().find((one) => one !== null && one !== undefined);
  return field.display ? formattedValueToString(field.display(value)) : String(value);
}

export function shown(panel, frames) {
  const fields = frames.flatMap((frame) =>
    frame.fields.filter(({ type }) => type !== 'time').map((field) => ({ frame, field }))
  );
  if (!fields.some(({ frame }) => frame.length)) return [`(${panel.fieldConfig.defaults.noValue})`];
  // The name of a query without a legend is the query; a stat shows none.
  const name = (field, frame) => (panel.type === 'stat' ? '' : `${getFieldDisplayName(field, frame, frames)}=`);
  const said = fields.slice(0, MOST).map(({ frame, field }) => name(field, frame) + lastOf(field));
  return fields.length > MOST ? [...said, `${fields.length - MOST} more`] : said;
}
