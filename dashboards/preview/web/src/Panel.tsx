// A panel in its frame, or what Grafana would say where there is nothing to draw.

import { DataFrame, TimeRange } from '@grafana/data';
import { PanelChrome, useTheme2 } from '@grafana/ui';
import { Component, ReactNode } from 'react';

import { PANELS } from './panels';
import { Mark, PanelModel, failures } from './picture';

class Guard extends Component<{ title: string; children: ReactNode }, { failure?: Error }> {
  state: { failure?: Error } = {};

  static getDerivedStateFromError(failure: Error) {
    return { failure };
  }

  componentDidCatch(failure: Error) {
    failures.push(`panel '${this.props.title}': ${failure.message}`);
  }

  render() {
    return this.state.failure ? <pre>{String(this.state.failure.stack)}</pre> : this.props.children;
  }
}

interface Props {
  panel: PanelModel;
  data: DataFrame[];
  marks: Mark[];
  timeRange: TimeRange;
  width: number;
  height: number;
}

export function Panel({ panel, data, marks, timeRange, width, height }: Props) {
  const theme = useTheme2();
  const Drawing = PANELS[panel.type];
  if (!Drawing) {
    failures.push(`panel '${panel.title}': there is no way to draw a ${panel.type}`);
  }
  const empty = data.every((frame) => frame.length === 0);
  const nothing = panel.fieldConfig.defaults.noValue ?? 'No data';
  return (
    <PanelChrome
      title={panel.title}
      description={panel.description}
      width={width}
      height={height}
      padding={panel.type === 'table' ? 'none' : 'md'}
    >
      {(innerWidth, innerHeight) => (
        <Guard title={panel.title}>
          {empty && !['stat', 'text'].includes(panel.type) ? (
            <Nothing text={nothing} color={theme.colors.text.secondary} />
          ) : (
            Drawing && <Drawing {...{ panel, data, marks, timeRange }} width={innerWidth} height={innerHeight} />
          )}
        </Guard>
      )}
    </PanelChrome>
  );
}

function Nothing({ text, color }: { text: string; color: string }) {
  return <div style={{ height: '100%', display: 'grid', placeItems: 'center', textAlign: 'center', color }}>{text}</div>;
}
