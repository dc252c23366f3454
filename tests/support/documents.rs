//! Documents of this tree, their links and sections, and the dashboard's own queries.
//!
//! `seeing.rs` compares names and links with the tree, `deploy_files.rs` the command lines. It must
//! not judge a metric.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The address of this tree's documents, for readers of an alert.
const DOCUMENTS: &str = "https://github.com/onceway/onceway/blob/main/";

pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn text(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Markdown file of this tree, by its path, in order. Built and hidden folders have none.
pub fn pages() -> Vec<String> {
    let mut found = Vec::new();
    walk("", &mut found);
    found.sort();
    assert!(found.contains(&"docs/operate/deploy.md".to_owned()), "pages are missing: {found:?}");
    found
}

fn walk(below: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(top().join(below)).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.path().is_dir() && name != "target" && !name.starts_with('.') {
            walk(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The broken links of a page: to a file or a section that is not in this tree. Links to other
/// sites are not followed.
pub fn broken_links(page: &str, markdown: &str) -> Vec<String> {
    let folder = Path::new(page).parent().expect("a page is in a folder");
    let targets = markdown.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let here = targets.map(|(target, _)| target).filter(|target| !target.starts_with("http"));
    let leads = |target: &str| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { top().join(page) } else { top().join(folder).join(file) };
        let has = || anchors(&fs::read_to_string(&path).unwrap_or_default()).contains(anchor);
        path.exists() && (anchor.is_empty() || has())
    };
    here.filter(|target| !leads(target)).map(str::to_owned).collect()
}

/// Fails unless the link of this alert leads to a section of a document of this tree.
pub fn place_of(alert: &str, url: &str) {
    let place = url.strip_prefix(DOCUMENTS).unwrap_or_else(|| panic!("{alert}: {url} is elsewhere"));
    let (file, anchor) = place.split_once('#').unwrap_or_else(|| panic!("{alert}: {url} names no section"));
    assert!(anchors(&text(file)).contains(anchor), "{alert}: {file} has no section #{anchor}");
}

/// The anchors of a document's headings, as GitHub makes them.
pub fn anchors(markdown: &str) -> BTreeSet<String> {
    let headings =
        markdown.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| -> String {
        let kept = heading.to_lowercase();
        kept.chars()
            .filter(|at| at.is_alphanumeric() || " -_".contains(*at))
            .map(|at| if at == ' ' { '-' } else { at })
            .collect()
    };
    headings.map(anchor).collect()
}

/// The dashboard's queries, in order, each with its panel's title.
pub fn queries() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&text("deploy/grafana/onceway.json")).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().cloned().unwrap_or_default();
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let query = |target: Value| target["expr"].as_str().expect("a query").to_owned();
        targets.into_iter().map(move |target| (title.clone(), query(target))).collect::<Vec<_>>()
    };
    panels.iter().flat_map(of).collect()
}
