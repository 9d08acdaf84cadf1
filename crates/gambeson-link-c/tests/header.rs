//! The header is what cbindgen makes of the sources. `GAMBESON_WRITE=1 cargo test -p gambeson-link-c` writes it.

use std::path::Path;

use cbindgen::{Builder, Config, Language, RenameRule, Style};

const OPENING: &str = "\
/* Links between the processes of distributed programs, with a security context each: docs/links.md,
 * docs/reference/links.md. Written by `make reference`; do not edit.
 *
 * Functions return a status. What is filled in is filled in with GAMBESON_LINK_STATUS_OK alone, unless it is said
 * otherwise, and handles are null after a failure. gambeson_link_error() has the sentence behind it.
 *
 * A pointer is null, which is an error where something is needed, or leads to what its name says, with as many bytes as
 * the length beside it says; texts are UTF-8 with a zero byte at their end. Handles come from the functions here, are
 * freed once by their own function, and are not used afterwards. Threads may share domains, endpoints and startpoints;
 * everything else belongs to one thread at a time. What a function takes over, it takes whatever it returns. */";

fn generated() -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut config = Config {
        language: Language::C,
        header: Some(OPENING.into()),
        include_guard: Some("GAMBESON_LINK_H".into()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).into(),
        cpp_compat: true,
        usize_is_size_t: true,
        style: Style::Type,
        line_length: 120,
        tab_width: 4,
        documentation_style: cbindgen::DocumentationStyle::C99,
        ..Config::default()
    };
    config.enumeration.rename_variants = RenameRule::ScreamingSnakeCase;
    config.enumeration.prefix_with_name = true;
    let enums = ["end", "operation", "progress", "protection", "refusal", "transport"];
    config.export.include = enums.map(|name| format!("gambeson_link_{name}")).into();
    let files = ["failure", "identity", "policy", "domain", "refusals", "endpoint", "startpoint", "transport"];
    let files = files.into_iter().chain(["buffers", "region", "group", "own", "launch"]);
    let builder = files.into_iter().fold(Builder::new().with_config(config), |builder, file| {
        builder.with_src(sources.join(file).with_extension("rs"))
    });
    let mut header = Vec::new();
    builder.generate().expect("the sources are C's").write(&mut header);
    String::from_utf8(header).expect("a header is text")
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/gambeson/link.h");
    let generated = generated();
    if std::env::var_os("GAMBESON_WRITE").is_some() {
        std::fs::write(&path, &generated).expect("it can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == generated, "{} is stale; run make reference", path.display());
}
