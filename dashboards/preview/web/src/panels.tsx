// One function for each kind of panel.

import {
  DataFrame,
  FieldDisplay,
  TimeRange,
  VizOrientation,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderMarkdown,
} from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, UPlotConfigBuilder, VizRepeater, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { ReactNode } from 'react';

import { TIME_ZONE, configOf } from './fields';
import { Heatmap } from './Heatmap';
import { Mark, PanelModel } from './picture';
import { StateTimeline } from './StateTimeline';

export interface Props {
  panel: PanelModel;
  data: DataFrame[];
  marks: Mark[];
  timeRange: TimeRange;
  width: number;
  height: number;
}

// Who holds a plot, which comes some time after its panel: the legend is measured first.
export const PLOT = 'holds-a-plot';

function TimeSeriesPanel({ panel, data, marks, timeRange, width, height }: Props) {
  const theme = useTheme2();
  return (
    <div className={PLOT}>
      <TimeSeries
      frames={data}
      structureRev={1}
      timeRange={timeRange}
      timeZone={TIME_ZONE}
      width={width}
      height={height}
      legend={{ calcs: [], ...panel.options.legend }}
      options={panel.options}
    >
      {(config: UPlotConfigBuilder) => {
        config.addHook('draw', (plot) => drawMarks(plot, marks, (color) => theme.visualization.getColorByName(color)));
        return null;
      }}
    </TimeSeries>
    </div>
  );
}

function drawMarks(plot: uPlot, marks: Mark[], colorOf: (name: string) => string) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const place = (time: number) => Math.round(plot.valToPos(time, 'x', true));
  ctx.save();
  for (const mark of marks) {
    const x = place(mark.time);
    if (x < left || x > left + width) {
      continue;
    }
    const color = colorOf(mark.color);
    ctx.strokeStyle = ctx.fillStyle = color;
    ctx.setLineDash([5, 5]);
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(x - 4, top + height + 5);
    ctx.lineTo(x + 4, top + height + 5);
    ctx.lineTo(x, top + height);
    ctx.fill();
  }
  ctx.restore();
}

function displayValues({ panel, data }: Props, theme: any, sparkline = false): FieldDisplay[] {
  return getFieldDisplayValues({
    data,
    fieldConfig: configOf(panel),
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text,
    sparkline,
    theme,
    timeZone: TIME_ZONE,
  });
}

function StatPanel(props: Props) {
  const theme = useTheme2();
  const { options } = props.panel;
  return (
    <VizRepeater
      getValues={() => displayValues(props, theme, options.graphMode !== 'none')}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, count, alignmentFactors }) => (
        <BigValue
          value={value.display}
          count={count}
          sparkline={value.sparkline ? { ...value.sparkline, timeRange: props.timeRange } : undefined}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          alignmentFactors={alignmentFactors}
          text={options.text}
          width={width}
          height={height}
          theme={theme}
        />
      )}
      source={props.data}
      renderCounter={0}
      width={props.width}
      height={props.height}
      orientation={options.orientation ?? VizOrientation.Auto}
      itemSpacing={3}
      autoGrid
    />
  );
}

function BarGaugePanel(props: Props) {
  const theme = useTheme2();
  const { options } = props.panel;
  return (
    <VizRepeater
      getValues={() => displayValues(props, theme)}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, width, height, orientation, alignmentFactors }) => (
        <BarGauge
          value={value.display}
          field={value.field}
          display={value.view?.getFieldDisplayProcessor(value.colIndex!)}
          alignmentFactors={alignmentFactors}
          orientation={orientation}
          displayMode={options.displayMode}
          showUnfilled={options.showUnfilled}
          valueDisplayMode={options.valueMode}
          namePlacement={options.namePlacement ?? 'auto'}
          text={options.text}
          lcdCellWidth={12}
          itemSpacing={8}
          width={width}
          height={height}
          theme={theme}
        />
      )}
      source={props.data}
      renderCounter={0}
      width={props.width}
      height={props.height}
      orientation={options.orientation}
      itemSpacing={8}
      minVizWidth={options.minVizWidth}
      minVizHeight={options.minVizHeight}
      maxVizHeight={options.maxVizHeight ?? 300}
    />
  );
}

function TablePanel({ panel, data, width, height }: Props) {
  const { options } = panel;
  return (
    <TableNG
      data={data[options.frameIndex ?? 0] ?? data[0]}
      fieldConfig={panel.fieldConfig as any}
      noHeader={options.showHeader === false}
      showTypeIcons={options.showTypeIcons}
      initialSortBy={options.sortBy ?? []}
      cellHeight={options.cellHeight}
      width={width}
      height={height}
      structureRev={1}
      getActions={() => []}
      replaceVariables={(text: string) => text}
    />
  );
}

function TextPanel({ panel }: Props) {
  const html = panel.options.mode === 'markdown' ? renderMarkdown(panel.options.content) : panel.options.content;
  return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: html }} />;
}

export const PANELS: Record<string, (props: Props) => ReactNode> = {
  timeseries: TimeSeriesPanel,
  stat: StatPanel,
  bargauge: BarGaugePanel,
  table: TablePanel,
  'state-timeline': StateTimeline,
  heatmap: Heatmap,
  text: TextPanel,
};
