//! Documents of this tree, their links and sections, the dashboard's own queries, and recorded
//! histories.

use super::*;

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

/// The links of a page to a file or a section that is not in this tree.
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
    let headings = markdown.lines().filter_map(|line| line.strip_prefix('#'));
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|at| at.is_alphanumeric() || " -_".contains(*at));
        kept.map(|at| if at == ' ' { '-' } else { at }).collect()
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

/// As in its file, which the simulation plays, too. `ONCEWAY_RECORD=1` writes it first.
pub fn as_recorded(played: &str, file: &str) {
    let file = format!("simulation/histories/{file}");
    if std::env::var_os("ONCEWAY_RECORD").is_some() {
        fs::write(top().join(&file), played).unwrap();
    }
    let recorded = text(&file);
    for (number, (played, recorded)) in played.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(played, recorded, "line {}", number + 1);
    }
    assert_eq!(played.lines().count(), recorded.lines().count());
}
