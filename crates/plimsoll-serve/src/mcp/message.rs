//! Messages of JSON-RPC 2.0, and the versions of the protocol.

use serde_json::{Value, json};

/// The revision whose requests carry its name.
pub(super) const MODERN: &str = "2026-07-28";
/// Earlier revisions that begin with a handshake, the newest first.
pub(super) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The field of `_meta` that names the revision.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ErrorCode(i32);

impl ErrorCode {
    pub(super) const PARSE: ErrorCode = ErrorCode(-32700);
    pub(super) const INVALID_REQUEST: ErrorCode = ErrorCode(-32600);
    pub(super) const UNKNOWN_METHOD: ErrorCode = ErrorCode(-32601);
    pub(super) const INVALID_PARAMETERS: ErrorCode = ErrorCode(-32602);
    pub(super) const INTERNAL: ErrorCode = ErrorCode(-32603);
    /// The revision of a request is not supported.
    const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(-32022);
}

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// The answer to a text that is none.
    pub(super) fn read(text: &str) -> Result<Message, Value> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            failure(&Value::Null, ErrorCode::PARSE, &format!("the message is no JSON: {error}"))
        })?;
        let id = value.get("id").cloned();
        let refuse =
            |why: &str| failure(id.as_ref().unwrap_or(&Value::Null), ErrorCode::INVALID_REQUEST, why);
        if value.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(refuse("the message is not of JSON-RPC 2.0"));
        }
        let Some(method) = value.get("method").and_then(Value::as_str) else {
            return Err(refuse("the message has no method"));
        };
        let params = value.get("params").cloned().unwrap_or_else(|| json!({}));
        let method = method.to_string();
        match id {
            None => Ok(Message::Notification { method, params }),
            Some(id) if id.is_string() || id.is_number() => Ok(Message::Request { id, method, params }),
            Some(_) => Err(failure(
                &Value::Null,
                ErrorCode::INVALID_REQUEST,
                "the id is neither a text nor a number",
            )),
        }
    }
}

/// The kind of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// Requests carry the name of the revision.
    Modern,
    /// A handshake comes first.
    Legacy,
}

/// The revision that a request names; `None` if it names none, as earlier clients do.
pub(super) fn named_version(params: &Value) -> Option<&str> {
    params.get("_meta")?.get(VERSION)?.as_str()
}

/// A result.
pub(super) fn success(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// An error.
pub(super) fn failure(id: &Value, code: ErrorCode, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": message}})
}

/// The answer to a revision that is not supported.
pub(super) fn unsupported(id: &Value, requested: &str) -> Value {
    let supported: Vec<&str> = std::iter::once(MODERN).chain(LEGACY).collect();
    json!({"jsonrpc": "2.0", "id": id, "error": {
        "code": ErrorCode::UNSUPPORTED_VERSION.0,
        "message": "Unsupported protocol version",
        "data": {"supported": supported, "requested": requested},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_json_rpc_are_read() {
        let read = |text| Message::read(text).map_err(|answer| answer["error"]["code"].as_i64());
        let request = read(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#).unwrap();
        assert_eq!(request, Message::Request { id: "a".into(), method: "ping".into(), params: json!({}) });
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","method":"x","params":{}}"#),
            Ok(Message::Notification { .. })
        ));
        for (text, code) in [
            ("{", -32700),
            ("[]", -32600),
            (r#"{"id":1,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        ] {
            assert_eq!(read(text).unwrap_err(), Some(code), "{text}");
        }
    }
}
