//! The tools: their descriptions, and the reading of their arguments.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::job::LabelForm;

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    /// Lists the models.
    Models,
    /// Shows memory and queue.
    Status,
    /// Plans an image.
    Plan { model: String, image: PathBuf, form: LabelForm },
    /// Labels an image.
    Label { model: String, image: PathBuf, form: LabelForm, output: PathBuf, overwrite: bool },
}

/// The descriptions of all tools.
pub(super) fn tools() -> Value {
    let model = json!({"type": "string", "description": "The name of a model that `list_models` lists."});
    let image = json!({
        "type": "string",
        "description": "The path of a .nii or .nii.gz file; or of a folder or a ZIP archive of the slices of one DICOM series.",
    });
    let form = json!({
        "type": "string", "enum": LabelForm::NAMES, "default": LabelForm::NAMES[0],
        "description": "A label map, or for DICOM a segmentation that refers to the slices.",
    });
    json!([
        {
            "name": "list_models", "title": "List models",
            "description": "Lists the models with their channels and labels.",
            "inputSchema": {"type": "object", "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        },
        {
            "name": "status", "title": "Show memory and queue",
            "description": "Shows the memory limit, the most memory so far, and the predictions that wait.",
            "inputSchema": {"type": "object", "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        },
        {
            "name": "plan", "title": "Plan a prediction",
            "description": "States the memory and the time that labelling an image would take, from its header.",
            "inputSchema": {
                "type": "object", "additionalProperties": false, "required": ["model", "image"],
                "properties": {"model": model, "image": image, "form": form},
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        },
        {
            "name": "label", "title": "Label an image",
            "description": "Labels the voxels of an image, and writes the labels to a file.",
            "inputSchema": {
                "type": "object", "additionalProperties": false, "required": ["model", "image", "output"],
                "properties": {
                    "model": model, "image": image, "form": form,
                    "output": {
                        "type": "string",
                        "description": "The path of the file of labels: .nii.gz, .nii for an image that is .nii, or .dcm for a segmentation.",
                    },
                    "overwrite": {"type": "boolean", "default": false, "description": "Replace an existing file."},
                },
            },
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false},
        },
    ])
}

impl Call {
    /// Reads the parameters of `tools/call`.
    ///
    /// # Errors
    /// The fault in one line.
    pub(super) fn read(params: &Value) -> Result<Call, String> {
        let name = params.get("name").and_then(Value::as_str).ok_or("the call has no name of a tool")?;
        let empty = json!({});
        let arguments = params.get("arguments").unwrap_or(&empty);
        let arguments = arguments.as_object().ok_or("the arguments are no object")?;
        let known: &[&str] = match name {
            "list_models" | "status" => &[],
            "plan" => &["model", "image", "form"],
            "label" => &["model", "image", "form", "output", "overwrite"],
            _ => return Err(format!("there is no tool {name:?}")),
        };
        if let Some(unknown) = arguments.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("{name} has no argument {unknown:?}"));
        }
        let text = |key: &str| match arguments.get(key) {
            Some(Value::String(text)) => Ok(Some(text.clone())),
            None => Ok(None),
            Some(_) => Err(format!("the argument {key:?} is no text")),
        };
        let needed = |key: &str| text(key)?.ok_or_else(|| format!("{name} needs the argument {key:?}"));
        let form = || match text("form")? {
            None => Ok(LabelForm::Nifti),
            Some(form) => LabelForm::from_name(&form)
                .ok_or_else(|| format!("`form` is one of {}", LabelForm::NAMES.join(", "))),
        };
        let overwrite = || match arguments.get("overwrite") {
            None => Ok(false),
            Some(Value::Bool(overwrite)) => Ok(*overwrite),
            Some(_) => Err("the argument \"overwrite\" is neither true nor false".to_string()),
        };
        Ok(match name {
            "list_models" => Call::Models,
            "status" => Call::Status,
            "plan" => Call::Plan { model: needed("model")?, image: needed("image")?.into(), form: form()? },
            _ => Call::Label {
                model: needed("model")?,
                image: needed("image")?.into(),
                form: form()?,
                output: needed("output")?.into(),
                overwrite: overwrite()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_tool_is_read_with_its_required_arguments_and_nothing_else() {
        for tool in tools().as_array().unwrap() {
            let required = tool["inputSchema"]["required"].as_array().cloned().unwrap_or_default();
            let mut arguments = serde_json::Map::new();
            arguments.extend(required.iter().map(|name| (name.as_str().unwrap().to_string(), json!("x"))));
            let call = |arguments: &serde_json::Map<String, Value>| {
                Call::read(&json!({"name": tool["name"], "arguments": arguments}))
            };
            call(&arguments).unwrap();
            for name in required {
                let mut less = arguments.clone();
                less.remove(name.as_str().unwrap());
                assert!(call(&less).unwrap_err().contains("needs the argument"));
            }
            arguments.insert("other".into(), json!("x"));
            assert!(call(&arguments).unwrap_err().contains("no argument"));
        }
        assert!(Call::read(&json!({"name": "erase"})).is_err());
        assert!(Call::read(&json!({"name": "status", "arguments": 7})).is_err());
    }
}
