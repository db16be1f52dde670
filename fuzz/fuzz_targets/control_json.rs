//! Requests on the control socket, as its server reads them: one JSON object per line.

#![no_main]

use fairpath_history::snapshot::{Answer, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The answer of a daemon, which `top`, `status` and `check` read.
    if let Ok(answer) = serde_json::from_slice::<Answer>(input) {
        serde_json::to_vec(&answer).expect("an answer that was read can be written");
    }
    let Ok(request) = serde_json::from_slice::<Request>(input) else {
        return;
    };
    let _ = request.changes();
    let text = serde_json::to_vec(&request).expect("a request that was read can be written");
    let again: Request = serde_json::from_slice(&text).expect("a written request can be read");
    assert_eq!(again, request);
});
