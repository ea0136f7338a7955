//! The Model Context Protocol, as a program speaks it that starts the server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::client::{Trained, oracle};
use crate::support::plimsoll;

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn start(model: &Path, scratch: &Path) -> Client {
        let mut command = plimsoll();
        command.args(["serve", "--stdio", "--ram", "512MiB", "--scratch"]).arg(scratch);
        command.arg("--model").arg(format!("tiny={}", model.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Client { child, input, output, next: 0 }
    }

    fn line(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request as clients of the present revision do, and returns the answer.
    fn request(&mut self, method: &str, mut params: Value) -> Value {
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.line(
            &json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}).to_string(),
        );
        let answer = self.read();
        assert_eq!(answer["id"], self.next, "{answer}");
        answer
    }

    /// Calls a tool, and returns its result, and `true` if that is an error.
    fn call(&mut self, name: &str, arguments: Value) -> (Value, bool) {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        let result = &answer["result"];
        assert_eq!(result["resultType"], "complete", "{answer}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        (text, result["isError"].as_bool().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tools_are_listed_planned_and_run_and_the_end_of_the_input_ends_the_server() {
    let (trained, scratch) = (Trained::new(), tempfile::tempdir().unwrap());
    let mut client = Client::start(&trained.run, scratch.path());
    let discovered = client.request("server/discover", json!({}));
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28", "{discovered}");
    let listed = client.request("tools/list", json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["list_models", "status", "plan", "label"]);
    assert_eq!(client.call("list_models", json!({})).0["models"][0]["name"], "tiny");
    let (image, output) = (trained.image_path(), trained.tiny.path("labels.nii.gz"));
    let (plan, is_error) = client.call("plan", json!({"model": "tiny", "image": image}));
    assert!(!is_error && plan["planned_ram_bytes"].as_u64().unwrap() <= 512 << 20, "{plan}");
    let arguments = json!({"model": "tiny", "image": image, "output": output});
    let (labelled, is_error) = client.call("label", arguments.clone());
    assert!(!is_error && output.is_file(), "{labelled}");
    assert_eq!(labelled["plan"]["needed_ram_bytes"], plan["needed_ram_bytes"]);
    // An existing file is kept, unless it is to be replaced.
    let before = fs::read(&output).unwrap();
    let (kept, is_error) = client.call("label", arguments.clone());
    assert!(is_error && kept["error"].as_str().unwrap().ends_with("exists"), "{kept}");
    let mut replacing = arguments;
    replacing["overwrite"] = true.into();
    assert!(!client.call("label", replacing).1);
    assert_eq!(fs::read(&output).unwrap(), before);
    assert_eq!(client.call("status", json!({})).0["taken_places"], 0);
    client.input = None;
    assert!(client.child.wait().unwrap().success());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_series_becomes_a_segmentation() {
    let folder = tempfile::tempdir().unwrap();
    let model = oracle("total_segmentator/weights/Dataset297_TotalSegmentator_total_3mm_1559subj");
    let mut client = Client::start(&model, folder.path());
    let output = folder.path().join("labels.dcm");
    let series = oracle("dicom/short").canonicalize().unwrap();
    let (result, is_error) = client
        .call("label", json!({"model": "tiny", "image": series, "output": output, "form": "dicom-seg"}));
    assert!(!is_error, "{result}");
    assert_eq!(&fs::read(&output).unwrap()[128..132], b"DICM");
}

#[test]
fn clients_of_earlier_revisions_begin_with_a_handshake() {
    let (trained, scratch) = (Trained::new(), tempfile::tempdir().unwrap());
    let mut client = Client::start(&trained.run, scratch.path());
    client.line(r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#);
    assert_eq!(client.read()["error"]["code"], -32602);
    client.line(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
    );
    let begun = client.read();
    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18", "{begun}");
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client.line(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    assert_eq!(client.read(), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    client.line(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{}}"#);
    let listed = client.read();
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 4);
    assert_eq!(listed["result"].get("resultType"), None);
}

#[test]
fn bad_messages_and_calls_are_refused_and_the_server_stays_up() {
    let (trained, scratch) = (Trained::new(), tempfile::tempdir().unwrap());
    let mut client = Client::start(&trained.run, scratch.path());
    for (line, code) in [
        ("not json", -32700),
        ("[1, 2]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"erase","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
            -32601,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}"#,
            -32022,
        ),
    ] {
        client.line(line);
        assert_eq!(client.read()["error"]["code"], code, "{line}");
    }
    client.line(&"x".repeat(3 << 20));
    assert_eq!(client.read()["error"]["code"], -32700);
    let unknown = client.request("tools/call", json!({"name": "label", "arguments": {"model": "tiny"}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let broken = trained.tiny.path("broken.nii.gz");
    fs::write(&broken, &trained.image()[..300]).unwrap();
    let output = trained.tiny.path("never.nii.gz");
    for (model, image, output, part) in [
        ("other", trained.image_path(), output.clone(), "no model of this name"),
        ("tiny", trained.tiny.path("nothing.nii.gz"), output.clone(), "does not exist"),
        ("tiny", broken, output.clone(), "broken.nii.gz"),
        ("tiny", trained.image_path(), trained.tiny.path("labels.txt"), "does not end in"),
        ("tiny", trained.image_path(), trained.tiny.path("labels.nii"), "end in .nii.gz, as the image does"),
    ] {
        let (problem, is_error) =
            client.call("label", json!({"model": model, "image": image, "output": output}));
        assert!(is_error && problem["error"].as_str().unwrap().contains(part), "{problem}");
        assert!(!output.exists());
    }
    assert_eq!(client.call("status", json!({})).0["taken_places"], 0);
}
