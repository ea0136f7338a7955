//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use plimsoll::StopToken;
use serde::Serialize;

use super::answer::{self, json};
use super::openapi;
use super::series::Archive;
use super::upload::{expect_room, receive};
use crate::access::{Access, Presented};
use crate::dicomweb::SeriesUid;
use crate::job::{Job, LabelForm, Prepared};
use crate::problem::Problem;
use crate::service::{CancelOnDrop, Service};
use crate::worker::Turn;

/// The routes, of which all but the first two need access.
pub(super) const ROUTES: [&str; 8] = [
    "/health",
    "/openapi.json",
    "/v1/status",
    "/v1/models",
    "/v1/models/{model}",
    "/v1/models/{model}/plan",
    "/v1/models/{model}/labels",
    "/v1/models/{model}/studies/{study}/series/{series}",
];

/// The state of handlers.
#[derive(Clone)]
struct Shared {
    service: Arc<Service>,
    access: Arc<Access>,
    archive: Option<Arc<Archive>>,
}

/// The router of a service.
pub(super) fn router(service: Arc<Service>, access: Access, archive: Option<Archive>) -> Router {
    let [health, openapi, status, models, model, plan, labels, series] = ROUTES;
    let shared = Shared { service, access: Arc::new(access), archive: archive.map(Arc::new) };
    let protected = Router::new()
        .route(status, get(show_status))
        .route(models, get(list_models))
        .route(model, get(show_model))
        .route(plan, post(make_plan))
        .route(labels, post(make_labels))
        .route(series, post(label_series))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(shared.clone(), expect_access));
    Router::new()
        .route(health, get(show_health))
        .route(openapi, get(show_openapi))
        .merge(protected)
        .with_state(shared)
}

/// Refuses a request without the right to be answered.
async fn expect_access(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let presented = Presented {
        authorization: text(header::AUTHORIZATION),
        host: text(header::HOST),
        origin: headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("null")),
    };
    if shared.access.allows(presented) {
        return next.run(request).await;
    }
    let problem = match &*shared.access {
        Access::Tokens(_) => Problem::new(
            StatusCode::UNAUTHORIZED,
            "the request has no token, or a wrong one",
            "send the header `Authorization: Bearer TOKEN` with the token that the server was started with",
        ),
        Access::Open => Problem::new(
            StatusCode::FORBIDDEN,
            "the request is for another host, or from a page of another site",
            "send requests to 127.0.0.1 or localhost, or start the server with a token",
        ),
    };
    problem.into_response()
}

async fn unknown() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this address",
        "/openapi.json lists the addresses",
    )
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this address has another method",
        "/openapi.json lists the methods",
    )
}

async fn show_health() -> Response {
    #[derive(Serialize)]
    struct Health {
        status: &'static str,
        version: &'static str,
    }
    json(&Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

async fn show_openapi(State(shared): State<Shared>) -> Response {
    json(&openapi::document(shared.service.bounds()))
}

async fn show_status(State(shared): State<Shared>) -> Response {
    json(&shared.service.status())
}

async fn list_models(State(shared): State<Shared>) -> Response {
    #[derive(Serialize)]
    struct Models<'a> {
        models: Vec<&'a crate::models::ModelCard>,
    }
    json(&Models { models: shared.service.models().iter().map(|model| &model.card).collect() })
}

async fn show_model(State(shared): State<Shared>, name: Name) -> Result<Response, Problem> {
    Ok(json(&shared.service.model(&decoded(name)?)?.card))
}

async fn make_plan(State(shared): State<Shared>, name: Name, request: Request) -> Result<Response, Problem> {
    let (prepared, _cancel) = prepare(&shared.service, &decoded(name)?, request).await?;
    Ok(json(&prepared.plan))
}

async fn make_labels(
    State(shared): State<Shared>,
    name: Name,
    request: Request,
) -> Result<Response, Problem> {
    let service = &shared.service;
    let (prepared, cancel) = prepare(service, &decoded(name)?, request).await?;
    let turn = Turn::InOrder { seconds: prepared.plan.predicted_seconds };
    let predicting = service.worker().submit(turn, &cancel.stop, || prepared.predict());
    let labels = predicting.await.map_err(|_| ended(service))??;
    answer::labels(&labels)
}

/// Labels a series of the archive, and stores the segmentation there.
async fn label_series(
    State(shared): State<Shared>,
    names: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Response, Problem> {
    let Path((model, study, series)) = names.map_err(|_| not_utf8())?;
    let archive = shared.archive.as_ref().ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "the server has no archive of images",
            "start it with `--dicomweb URL`, or send the series to /v1/models/{model}/labels",
        )
    })?;
    let uid = SeriesUid::new(study, series)?;
    let model = shared.service.model(&model)?;
    Ok(json(&archive.label(&shared.service, model, &uid).await?))
}

/// The name of a model in a path.
type Name = Result<Path<String>, PathRejection>;

fn decoded(name: Name) -> Result<String, Problem> {
    match name {
        Ok(Path(name)) => Ok(name),
        Err(_) => Err(not_utf8()),
    }
}

fn not_utf8() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "the address is not encoded as UTF-8",
        "/v1/models lists the names of models",
    )
}

/// Receives and plans a request. Returns what cancels it as well.
async fn prepare(
    service: &Arc<Service>,
    name: &str,
    request: Request,
) -> Result<(Prepared, CancelOnDrop), Problem> {
    let (parts, body) = request.into_parts();
    let model = service.model(name)?;
    let form = form(&parts.uri)?;
    let workspace = service.enter()?;
    expect_room(claimed(&parts.headers, &body), service.bounds(), workspace.path())?;
    let source = workspace.file("upload");
    receive(body, &source, service.bounds()).await?;
    let cancel = CancelOnDrop { service: Arc::clone(service), stop: StopToken::default() };
    let job = Job { service: Arc::clone(service), model, workspace, source, form, stop: cancel.stop.clone() };
    let planning = service.worker().submit(Turn::First, &cancel.stop, || job.prepare());
    let prepared = planning.await.map_err(|_| ended(service))??;
    Ok((prepared, cancel))
}

/// The work of a request ended without a result.
pub(super) fn ended(service: &Service) -> Problem {
    if service.worker().is_closing() { Problem::closing() } else { Problem::internal() }
}

/// The length of a body as its client states it.
fn claimed(headers: &HeaderMap, body: &Body) -> Option<u64> {
    let header = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    header.or(body.size_hint().exact())
}

/// The form of labels that a query asks for.
fn form(uri: &Uri) -> Result<LabelForm, Problem> {
    let query = uri.query().unwrap_or("");
    let mut form = LabelForm::Nifti;
    for field in query.split('&').filter(|field| !field.is_empty()) {
        let found = match field.split_once('=') {
            Some(("form", name)) => LabelForm::from_name(name),
            _ => None,
        };
        form = found.ok_or_else(|| {
            let names = LabelForm::NAMES.map(|name| format!("`form={name}`")).join(" and ");
            Problem::new(
                StatusCode::BAD_REQUEST,
                "the query has an unknown field or value",
                format!("{names} are known"),
            )
        })?;
    }
    Ok(form)
}
