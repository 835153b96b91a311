import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import '@fontsource/inter/600.css';
import '@fontsource/roboto-mono/400.css';
import 'uplot/dist/uPlot.min.css';

import { DataFrame, TimeRange, createTheme, dateTime, dateTimeFormat } from '@grafana/data';
import { GlobalStyles, ThemeContext } from '@grafana/ui';
import { createRoot } from 'react-dom/client';

import { TIME_ZONE, dataOf } from './fields';
import { Panel } from './Panel';
import { PLOT } from './panels';
import { PanelModel, Picture, failures } from './picture';

// Grafana's grid: 24 columns, rows of 30 pixels, 8 between.
const COLUMNS = 24;
const ROW = 30;
const GAP = 8;
const MARGIN = 16;

const theme = createTheme({ colors: { mode: 'dark' } });
(window as any).__grafana_public_path__ = '/';

function Header({ picture }: { picture: Picture }) {
  const { colors, shape } = theme;
  const time = (at: number) => dateTimeFormat(at, { format: 'YYYY-MM-DD HH:mm', timeZone: TIME_ZONE });
  const box = { border: `1px solid ${colors.border.medium}`, borderRadius: shape.radius.default, padding: '5px 8px' };
  return (
    <div style={{ display: 'flex', gap: 8, alignItems: 'center', height: 40, margin: `8px ${MARGIN}px` }}>
      <span style={{ fontSize: 18, fontWeight: 500, marginRight: 16 }}>{picture.title}</span>
      {picture.variables.map(({ label, value }) => (
        <span key={label} style={{ display: 'flex' }}>
          <span style={{ ...box, background: colors.background.secondary, fontWeight: 500 }}>{label}</span>
          <span style={{ ...box, borderLeft: 'none', color: colors.text.secondary }}>{value}</span>
        </span>
      ))}
      <span style={{ ...box, marginLeft: 'auto' }}>
        {time(picture.from)} to {time(picture.to)} UTC
      </span>
    </div>
  );
}

function RowTitle({ title, folded }: PanelModel) {
  const style = { fontSize: 16, fontWeight: 500, lineHeight: `${ROW}px` };
  return (
    <div style={style}>
      {folded ? '›' : '⌄'} {title}
    </div>
  );
}

function Dashboard({ picture, data }: { picture: Picture; data: Map<number, DataFrame[]> }) {
  const column = (window.innerWidth - 2 * MARGIN + GAP) / COLUMNS;
  const timeRange: TimeRange = {
    from: dateTime(picture.from),
    to: dateTime(picture.to),
    raw: { from: dateTime(picture.from), to: dateTime(picture.to) },
  };
  const place = ({ gridPos }: PanelModel) => ({
    left: MARGIN + gridPos.x * column,
    top: gridPos.y * (ROW + GAP),
    width: gridPos.w * column - GAP,
    height: gridPos.h * (ROW + GAP) - GAP,
  });
  return (
    <div style={{ position: 'relative' }}>
      {picture.panels.map((panel) => {
        const { width, height, ...corner } = place(panel);
        const common = { panel, timeRange, width, height, marks: picture.marks };
        return (
          <div key={panel.id} style={{ position: 'absolute', ...corner, width, height }}>
            {panel.type === 'row' ? <RowTitle {...panel} /> : <Panel {...common} data={data.get(panel.id)!} />}
          </div>
        );
      })}
    </div>
  );
}

async function main() {
  const picture: Picture = await (await fetch('/picture.json')).json();
  const drawn = picture.panels.filter((panel) => panel.type !== 'row');
  const data = new Map<number, DataFrame[]>();
  for (const panel of drawn) {
    data.set(panel.id, await dataOf(panel, theme));
  }
  await Promise.all(['400', '500', '600'].map((weight) => document.fonts.load(`${weight} 14px Inter`)));
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Header picture={picture} />
      <Dashboard picture={picture} data={data} />
    </ThemeContext.Provider>
  );
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const PATIENCE = 400; // looks, 50 milliseconds apart

async function settled() {
  const waiting = () => [...document.querySelectorAll(`.${PLOT}`)].filter((each) => !each.querySelector('.uplot canvas'));
  for (let look = 0; look < PATIENCE && waiting().length; look++) {
    await pause(50);
  }
  failures.push(...waiting().map(() => 'a plot did not come'));
  await pause(500);
}

main()
  .then(() => pause(100)) // for the first rendering
  .then(settled)
  .catch((failure) => failures.push(String(failure.stack)))
  .then(() => fetch('/drawn', { method: 'POST', body: JSON.stringify([...new Set(failures)]) }));
