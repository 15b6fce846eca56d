// The top of a dashboard: its title, its time range, what its variables are set to.
import { useTheme2 } from '@grafana/ui';

function Choice({ label, value }) {
  const theme = useTheme2();
  const border = `1px solid ${theme.colors.border.medium}`;
  return (
    <span style={{ display: 'inline-flex', border, borderRadius: 2, fontSize: 12 }}>
      <span style={{ padding: '4px 8px', background: theme.colors.background.secondary }}>{label}</span>
      <span style={{ padding: '4px 8px', borderLeft: border }}>{value}</span>
    </span>
  );
}

export function Header({ dashboard, variables, timeRange }) {
  const chosen = dashboard.templating.list.filter(({ type }) => type === 'query');
  const times = `${timeRange.from.utc().format('YYYY-MM-DD HH:mm:ss')} to ${timeRange.to.utc().format('HH:mm:ss')} UTC`;
  return (
    <div style={{ display: 'flex', gap: 8, alignItems: 'center', padding: 8 }}>
      <strong style={{ fontSize: 16, marginRight: 8 }}>{dashboard.title}</strong>
      {chosen.map(({ name, label, allValue }) => (
        <Choice key={name} label={label} value={variables[name] === allValue ? 'All' : variables[name] || 'none'} />
      ))}
      <span style={{ marginLeft: 'auto', fontSize: 12 }}>{times}</span>
    </div>
  );
}
