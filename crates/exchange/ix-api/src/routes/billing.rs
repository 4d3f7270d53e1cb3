//! The 95th percentiles of connections for a month, with their coverage.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{AccountId, Connection, ConnectionId, Exchange, OperationKind};
use millrace_ix_series::{Figure, Month};
use serde::Deserialize;

use super::traffic::record_traffic_read;
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::request::Query;
use crate::view;

/// The month and the account whose figures are read.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BillingParams {
    /// The month, as `2026-11`; the present one, as far as it has gone, if absent.
    month: Option<String>,
    /// The account; all that you may read if absent.
    account: Option<String>,
}

/// Returns the figures of a connection; `None` stands for one that was deleted.
fn row(
    exchange: &Exchange,
    id: ConnectionId,
    connection: Option<&Connection>,
    figure: &Figure,
) -> view::BillingRow {
    let account = connection.and_then(|connection| exchange.accounts.get(&connection.account));
    let [in4, out4] = figure.ipv4;
    let [in6, out6] = figure.ipv6;
    view::BillingRow {
        account: connection.map_or_else(String::new, |connection| connection.account.to_string()),
        account_name: account.map_or_else(String::new, |account| account.name.clone()),
        connection: id.to_string(),
        connection_name: connection.map_or_else(String::new, |connection| connection.name.clone()),
        in_bps: figure.incoming.value,
        out_bps: figure.outgoing.value,
        billed_bps: figure.billed(),
        coverage: f64::from(figure.coverage_permille()) / 1000.0,
        billable: figure.is_billable(),
        in_ipv4_bps: in4.value,
        out_ipv4_bps: out4.value,
        in_ipv6_bps: in6.value,
        out_ipv6_bps: out6.value,
    }
}

async fn read(app: &App, principal: &Principal, params: &BillingParams) -> Result<view::Billing, Problem> {
    principal.require(OperationKind::ReadTraffic)?;
    let month = params.month.as_deref().map(str::parse::<Month>).transpose();
    let month = month.map_err(|expected| Problem::invalid("/month", expected))?;
    let account = params.account.as_deref().filter(|text| !text.is_empty());
    let account = account.map(|text| {
        text.parse::<AccountId>()
            .map_err(|error| Problem::invalid("/account", error))
    });
    let account = account.transpose()?;
    if let Some(account) = account.filter(|account| !principal.may(OperationKind::ReadTraffic, *account)) {
        return Err(Problem::absent(account));
    }
    let exchange = &principal.snapshot.exchange;
    let readable = exchange.connections.iter().filter(|(id, connection)| {
        account.is_none_or(|account| connection.account == account)
            && principal.may(OperationKind::ReadTraffic, **id)
    });
    let readable: Vec<(ConnectionId, &Connection)> =
        readable.map(|(id, connection)| (*id, connection)).collect();
    if readable
        .iter()
        .any(|(_, connection)| Some(connection.account) != principal.actor.account)
    {
        let object = account.map(|account| account.to_string()).unwrap_or_default();
        let detail = serde_json::json!({ "month": month.map(|month| month.to_string()) });
        record_traffic_read(app, principal, object, detail).await?;
    }
    let ids = readable.into_iter().map(|(id, _)| id).collect();
    Ok(figures(app, exchange, &ids, month).await)
}

/// Returns the figures of connections for a month, or for the present one.
async fn figures(
    app: &App,
    exchange: &Exchange,
    connections: &BTreeSet<ConnectionId>,
    month: Option<Month>,
) -> view::Billing {
    let Some(series) = app.engine.series() else {
        return view::Billing {
            measured: false,
            month: month.map(|month| month.to_string()).unwrap_or_default(),
            frozen: false,
            rows: Vec::new(),
        };
    };
    let figures = series.figures(connections, month).await;
    let rows = figures
        .of
        .iter()
        .map(|(id, figure)| row(exchange, *id, exchange.connections.get(id), figure));
    view::Billing {
        measured: true,
        month: figures.month.to_string(),
        frozen: figures.frozen,
        rows: rows.collect(),
    }
}

impl App {
    /// Returns the figures of all connections for a month, or for the present one, for the exchange's staff. Connections that
    /// were deleted since its start are among them, without names.
    pub async fn billing(&self, month: Option<Month>) -> view::Billing {
        let snapshot = self.snapshot();
        let exchange = &snapshot.exchange;
        let mut connections: BTreeSet<ConnectionId> = exchange.connections.keys().copied().collect();
        if let Some(series) = self.engine.series() {
            connections.extend(series.measured(month).await);
        }
        let mut billing = figures(self, exchange, &connections, month).await;
        billing
            .rows
            .retain(|row| !row.account.is_empty() || row.billed_bps.is_some());
        billing
    }
}

impl view::Billing {
    /// Returns the figures as CSV (RFC 4180).
    pub fn csv(&self) -> String {
        text(self)
    }
}

/// Read the 95th percentiles of your connections for a month
///
/// The figures of a month that has ended are frozen, and the audit chain has them.
#[utoipa::path(get, path = "/api/v1/billing", tag = "billing", params(BillingParams),
    responses((status = 200, body = view::Billing), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn billing(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<BillingParams>,
) -> Result<Json<view::Billing>, Problem> {
    Ok(Json(read(&app, &principal, &params).await?))
}

/// Read the 95th percentiles of your connections for a month as CSV (RFC 4180)
#[utoipa::path(get, path = "/api/v1/billing.csv", tag = "billing", params(BillingParams),
    responses((status = 200, body = String, content_type = "text/csv"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn csv(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<BillingParams>,
) -> Result<Response, Problem> {
    let billing = read(&app, &principal, &params).await?;
    let headers = [
        (
            header::CONTENT_TYPE,
            "text/csv; charset=utf-8; header=present".to_owned(),
        ),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"billing-{}.csv\"", billing.month),
        ),
    ];
    // The byte order mark tells spreadsheets that the file is UTF-8.
    Ok((headers, format!("\u{feff}{}", text(&billing))).into_response())
}

/// Returns figures as CSV.
fn text(billing: &view::Billing) -> String {
    let mut text = "month,frozen,account,account_name,connection,connection_name,in_bps,out_bps,billed_bps,coverage,billable,\
        in_ipv4_bps,out_ipv4_bps,in_ipv6_bps,out_ipv6_bps\r\n"
        .to_owned();
    let rate = |rate: Option<u64>| rate.map(|rate| rate.to_string()).unwrap_or_default();
    for row in &billing.rows {
        let fields = [
            billing.month.clone(),
            billing.frozen.to_string(),
            row.account.clone(),
            quoted(&row.account_name),
            row.connection.clone(),
            quoted(&row.connection_name),
            rate(row.in_bps),
            rate(row.out_bps),
            rate(row.billed_bps),
            row.coverage.to_string(),
            row.billable.to_string(),
            rate(row.in_ipv4_bps),
            rate(row.out_ipv4_bps),
            rate(row.in_ipv6_bps),
            rate(row.out_ipv6_bps),
        ];
        text += &fields.join(",");
        text += "\r\n";
    }
    text
}

/// The characters with which a formula begins, in both widths: Japanese spreadsheets read both.
const FORMULA_SIGNS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', 'ー', '＠'];

/// Returns a name as a quoted field. A spreadsheet would compute a field that begins like a formula, so that such a name gets an
/// apostrophe in front.
fn quoted(name: &str) -> String {
    let is_formula = name.starts_with(FORMULA_SIGNS);
    let mark = if is_formula { "'" } else { "" };
    format!("\"{mark}{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_never_formulas() {
        assert_eq!(quoted("Aoba, \"Tokyo\""), "\"Aoba, \"\"Tokyo\"\"\"");
        for sign in FORMULA_SIGNS {
            assert_eq!(quoted(&format!("{sign}1+1")), format!("\"'{sign}1+1\""));
        }
        assert_eq!(quoted("青葉"), "\"青葉\"");
    }
}
