//! The description of the interface, as OpenAPI 3.1.

use serde_json::{Value, json};

use crate::job::LabelForm;
use crate::settings::Bounds;

/// The document of a service with these limits.
pub(super) fn document(bounds: &Bounds) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Plimsoll",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Labels of medical images, within one memory limit. A request is planned from the header of its image, then \
                            queued, or refused with the limit that it would need. Closing the connection cancels it.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths(bounds),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas(),
        },
    })
}

fn paths(bounds: &Bounds) -> Value {
    let model = json!([{
        "name": "model", "in": "path", "required": true, "schema": {"type": "string"},
        "description": "The name of a model.",
    }]);
    let open = json!([]);
    json!({
        "/health": {"get": {
            "operationId": "health", "summary": "Shows that the server answers.", "security": open,
            "responses": {"200": answer("The server answers.", "Health")},
        }},
        "/openapi.json": {"get": {
            "operationId": "openapi", "summary": "Returns this document.", "security": open,
            "responses": {"200": {"description": "This document.", "content": {"application/json": {"schema": {"type": "object"}}}}},
        }},
        "/v1/status": {"get": {
            "operationId": "status", "summary": "Shows memory and queue.",
            "responses": responses(&[("200", answer("The state.", "Status"))], &["401"]),
        }},
        "/v1/models": {"get": {
            "operationId": "models", "summary": "Lists the models.",
            "responses": responses(&[("200", answer("The models.", "Models"))], &["401"]),
        }},
        "/v1/models/{model}": {"parameters": model, "get": {
            "operationId": "model", "summary": "Describes a model.",
            "responses": responses(&[("200", answer("The model.", "Model"))], &["401", "404"]),
        }},
        "/v1/models/{model}/plan": {"parameters": model, "post": {
            "operationId": "plan", "summary": "Plans the prediction of an image, without predicting it.",
            "parameters": [form()], "requestBody": upload(bounds),
            "responses": responses(&[("200", answer("The plan.", "Plan"))], &ERRORS_OF_IMAGES),
        }},
        "/v1/models/{model}/labels": {"parameters": model, "post": {
            "operationId": "labels", "summary": "Labels the voxels of an image.",
            "parameters": [form()], "requestBody": upload(bounds),
            "responses": responses(&[("200", labels())], &ERRORS_OF_IMAGES),
        }},
        "/v1/models/{model}/studies/{study}/series/{series}": {"parameters": [model[0], uid("study"), uid("series")], "post": {
            "operationId": "series", "summary": "Labels a series of the archive, and stores the segmentation in its study.",
            "responses": responses(&[("200", answer("The segmentation was stored.", "Stored"))], &ERRORS_OF_SERIES),
        }},
    })
}

/// The statuses of errors of requests with an image.
const ERRORS_OF_IMAGES: [&str; 10] = ["400", "401", "404", "408", "413", "415", "422", "500", "503", "507"];

/// The same for series of the archive.
const ERRORS_OF_SERIES: [&str; 9] = ["400", "401", "404", "413", "422", "500", "502", "503", "507"];

fn uid(of: &str) -> Value {
    json!({
        "name": of, "in": "path", "required": true, "schema": {"type": "string", "pattern": "^[0-9.]{1,64}$"},
        "description": "A unique identifier of DICOM.",
    })
}

fn form() -> Value {
    json!({
        "name": "form", "in": "query",
        "schema": {"type": "string", "enum": LabelForm::NAMES, "default": LabelForm::NAMES[0]},
        "description": "The form of labels: a label map on the grid of the image, or a segmentation that refers to the slices of a DICOM series.",
    })
}

fn upload(bounds: &Bounds) -> Value {
    let binary = json!({"schema": {"type": "string", "format": "binary", "maxLength": bounds.upload.0}});
    json!({
        "required": true,
        "description": format!(
            "An image: a .nii or .nii.gz file; a ZIP archive of the slices of one DICOM series, or one file of DICOM; or a ZIP archive of a file \
             for each channel, CASE_0000.nii.gz and so on. The kind is told by the content. At most {} bytes, and {} unpacked.",
            bounds.upload.0, bounds.unpacked.0
        ),
        "content": {"application/octet-stream": binary, "application/gzip": binary, "application/zip": binary, "application/dicom": binary},
    })
}

fn labels() -> Value {
    let binary = json!({"schema": {"type": "string", "format": "binary"}});
    let number = |description: &str| json!({"description": description, "schema": {"type": "number"}});
    json!({
        "description": "The labels. NIfTI is compressed if the image is.",
        "headers": {
            "plimsoll-planned-ram-bytes": number("The planned memory of the process."),
            "plimsoll-seconds": number("The duration of the prediction."),
            "plimsoll-warning": {"description": "A warning about the image.", "schema": {"type": "string"}},
        },
        "content": {"application/gzip": binary, "application/octet-stream": binary, "application/dicom": binary},
    })
}

fn answer(description: &str, schema: &str) -> Value {
    json!({
        "description": description,
        "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
    })
}

fn responses(good: &[(&str, Value)], errors: &[&str]) -> Value {
    let mut all = serde_json::Map::new();
    all.extend(good.iter().map(|(status, answer)| ((*status).to_string(), answer.clone())));
    all.extend(errors.iter().map(|status| {
        let mut refused = answer(meaning(status), "Problem");
        if *status == "503" {
            refused["headers"] = json!({"retry-after": {
                "description": "Seconds after which the request may succeed; absent if the memory limit is too low for the image.",
                "schema": {"type": "integer"},
            }});
        }
        ((*status).to_string(), refused)
    }));
    Value::Object(all)
}

fn meaning(status: &str) -> &'static str {
    match status {
        "400" => "The query is wrong, or the upload ended early.",
        "401" => "The token is missing or wrong.",
        "404" => "There is no such model, or no such series in the archive.",
        "408" => "The upload was too slow.",
        "413" => "The upload, or what is packed in it, is too large.",
        "415" => "The upload is no image.",
        "422" => "The image is damaged, or not one of the model.",
        "502" => "The archive failed.",
        "503" => "The memory limit is too low for the image, the queue is full, or the server is ending.",
        "507" => "The disk has no room for the request.",
        _ => "The server failed.",
    }
}

fn schemas() -> Value {
    let object = |properties: Value, optional: &[&str]| {
        let names = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let required: Vec<String> = names.filter(|name| !optional.contains(&name.as_str())).collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    let (text, count, number) =
        (json!({"type": "string"}), json!({"type": "integer", "minimum": 0}), json!({"type": "number"}));
    json!({
        "Health": object(json!({"status": text, "version": text}), &[]),
        "Status": object(json!({
            "ram_limit_bytes": count, "transport_bytes": count, "peak_rss_bytes": {"type": ["integer", "null"]},
            "places": count, "taken_places": count, "waiting": count, "predicted_seconds": number,
        }), &[]),
        "Label": object(json!({"value": count, "name": text}), &[]),
        "Model": object(json!({
            "name": text, "channels": {"type": "array", "items": text},
            "labels": {"type": "array", "items": {"$ref": "#/components/schemas/Label"}},
            "window": {"type": "array", "items": count, "minItems": 3, "maxItems": 3}, "folds": count, "license": text,
        }), &["window", "folds", "license"]),
        "Models": object(json!({"models": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}), &[]),
        "Plan": object(json!({
            "model": text, "planned_ram_bytes": count, "needed_ram_bytes": count, "ram_limit_bytes": count,
            "windows": count, "predicted_seconds": number,
        }), &[]),
        "Stored": object(json!({
            "stored": {"type": "boolean"}, "plan": {"$ref": "#/components/schemas/Plan"}, "seconds": number,
            "warnings": {"type": "array", "items": text},
        }), &[]),
        "Problem": object(json!({
            "error": text, "hint": text, "needed_ram_bytes": count, "ram_limit_bytes": count, "retry_after_seconds": count,
        }), &["needed_ram_bytes", "ram_limit_bytes", "retry_after_seconds"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::router::ROUTES;

    #[test]
    fn the_document_has_every_route_and_every_schema_that_it_refers_to() {
        let bounds = Bounds::for_queue(4);
        let document = document(&bounds);
        let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        assert_eq!(paths.len(), ROUTES.len());
        assert!(ROUTES.iter().all(|route| paths.iter().any(|path| path == route)), "{paths:?}");
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        // Clients read the limit of uploads from it.
        assert!(text.contains(&format!("\"maxLength\":{}", bounds.upload.0)));
    }
}
