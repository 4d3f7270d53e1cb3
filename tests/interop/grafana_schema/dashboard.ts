// The JSON of a dashboard of panels of the type `timeseries`, by the types of Grafana: a test checks the dashboards of contrib/grafana
// with it. A member that the types do not know is a mistake, and so is one that is missing.
import type { Dashboard, DataQuery, DataSourceRef, FieldConfigSource, Panel } from '@grafana/schema';
import type {
  FieldConfig,
  Options,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has the values of enumerations, which are types of their own in TypeScript.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

interface PrometheusQuery extends DataQuery {
  datasource: DataSourceRef;
  expr: string;
}

interface TimeSeriesPanel extends Omit<Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> {
  type: 'timeseries';
  options: Options;
  targets: PrometheusQuery[];
  fieldConfig: FieldConfigSource<FieldConfig>;
}

interface TimeSeriesDashboard extends Omit<Dashboard, 'panels'> {
  panels: TimeSeriesPanel[];
}

export type DashboardJson = Json<TimeSeriesDashboard>;
