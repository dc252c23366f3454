//! Common parts of the console's pages: frame, tables, forms of acts, spans, dates and shares.
//!
//! maud escapes each text that is written into a page; `PreEscaped` must not be used.

use std::time::{Duration, SystemTime};

use maud::{DOCTYPE, Markup, html};

use crate::gateway::credentials::operators::Visitor;

/// Sections of the page, by their ids for links.
const SECTIONS: [(&str, &str); 10] = [
    ("requests", "Requests"),
    ("ring", "Ring"),
    ("windows", "Windows"),
    ("leases", "Leases"),
    ("doubts", "In doubt"),
    ("jobs", "Accepted"),
    ("regions", "Regions"),
    ("lag", "Lag"),
    ("look-up", "Look-up"),
    ("audit", "Audit"),
];

pub(super) const NOTHING: &str = "–";

pub(super) fn page(region: &str, title: &str, signed_in: bool, main: &Markup) -> Markup {
    let header = html! {
        header.top {
            p.brand { a href="/console" { "onceway" } " " span.region { (region) } }
            nav aria-label="Sections" {
                ul { @for (id, name) in SECTIONS { li { a href={ "/console#" (id) } { (name) } } } }
            }
            div.tools {
                // The script fills these in. Without a script there is nothing to pause.
                p #fresh .soft hidden {}
                button #pause type="button" hidden aria-pressed="false" { "Pause updates" }
                @if signed_in {
                    form method="post" action="/console/sign-out" { button type="submit" { "Sign out" } }
                }
            }
        }
    };
    document(region, title, &html! { (header) main #main { (main) } })
}

pub(super) fn sign_in(region: &str, why: Option<&str>) -> Markup {
    let main = html! {
        main #main .narrow {
            h1 { "onceway " span.region { (region) } }
            @if let Some(why) = why { p.notice.bad role="alert" { (why) } }
            form.act method="post" action="/console/sign-in" {
                // For password managers: they tell regions apart by this field.
                input type="text" name="username" value={ "onceway " (region) } autocomplete="username" readonly hidden;
                label for="token" { "Admin token" }
                input #token name="token" type="password" required autocomplete="current-password" spellcheck="false" autofocus;
                p.soft {
                    "Your own, or the shared one that " code { "[admin]" } " in the region file names. It is sent once and kept nowhere: you get a session for eight hours."
                }
                button type="submit" { "Sign in" }
            }
        }
    };
    document(region, "sign in", &main)
}

fn document(region: &str, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (region) ": " (title) " – onceway" }
                link rel="stylesheet" href="/console/console.css";
                link rel="icon" type="image/svg+xml" href="/console/icon.svg";
                script src="/console/console.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (body)
                p #told .unseen role="status" aria-live="polite" {}
            }
        }
    }
}

/// Makes a section of the one page. `live` names the part that refreshes it.
pub(super) fn section(id: &str, title: &str, live: Option<&str>, body: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-title" } data-live=[live] {
            h2 id={ (id) "-title" } { (title) }
            (body)
        }
    }
}

/// A row of a table: each cell with the head of its column.
pub(super) type Row<'a> = Vec<(&'a str, Markup)>;

/// Makes a table of at least one row. The first column names the row. Roles are written out, as
/// narrow screens show rows as blocks.
pub(super) fn table<'a>(caption: &str, rows: impl Iterator<Item = Row<'a>>) -> Markup {
    let rows: Vec<Row<'_>> = rows.collect();
    html! {
        table role="table" {
            caption.unseen { (caption) }
            thead role="rowgroup" {
                tr role="row" { @for (head, _) in rows.iter().take(1).flatten() { th role="columnheader" scope="col" { (head) } } }
            }
            tbody role="rowgroup" {
                @for row in &rows {
                    tr role="row" {
                        @for (number, (head, cell)) in row.iter().enumerate() {
                            @if number == 0 { th role="rowheader" scope="row" { (cell) } }
                            @else { td.empty[cell.0 == NOTHING] role="cell" data-head=(head) { div { (cell) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Writes a state in words, with a mark whose shape says the same as its colour.
pub(super) fn mark(kind: &str, text: &str) -> Markup {
    let sign = match kind {
        "good" => "●",
        "warn" => "▲",
        "bad" => "■",
        _ => "○",
    };
    html! { span.mark.(kind) { span.sign aria-hidden="true" { (sign) } " " (text) } }
}

pub(super) fn or_nothing<T: ToString>(value: Option<T>) -> String {
    value.map_or(NOTHING.to_owned(), |value| value.to_string())
}

/// Writes a span that counts down on the page if there is a script. `then` replaces it at the end.
pub(super) fn countdown(left_ms: u64, then: &str) -> Markup {
    html! { span.count role="timer" data-left-ms=(left_ms) data-then=(then) { (span(left_ms)) } }
}

/// Writes a span: `8 s`, `2 m 05 s`, `3 h 20 m`, `4 d 2 h`.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Writes how long ago a date was at `now`, then the date. Both are milliseconds since 1970.
pub(super) fn ago(at_ms: i64, now_ms: i64) -> Markup {
    let passed = u64::try_from(now_ms.saturating_sub(at_ms)).unwrap_or(0);
    html! { (span(passed)) " ago " span.soft { (date(at_ms)) } }
}

pub(super) fn date(at_ms: i64) -> String {
    const LAST: u64 = 253_402_300_799_000;
    let at = u64::try_from(at_ms).unwrap_or(0).min(LAST);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(at))
}

pub(super) fn millis(ms: Option<f64>) -> String {
    ms.map_or(NOTHING.to_owned(), |ms| format!("{ms:.1} ms"))
}

/// Writes a whole number with a comma between thousands.
pub(super) fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}{}", if number < 0 { "−" } else { "" }, groups.join(","))
}

/// The thing that an act is for.
pub(super) struct Place<'a> {
    /// The region that has to act.
    pub(super) region: &'a str,
    pub(super) tenant: &'a str,
    pub(super) key: &'a str,
    /// The thing as the operator saw it.
    pub(super) seen: &'a str,
}

/// An act's name, its title, what it means, and its own fields.
pub(super) type Offer = (&'static str, &'static str, &'static str, Markup);

/// Makes the forms of the acts, if the visitor may act.
pub(super) fn forms(
    visitor: &Visitor,
    me: &str,
    place: &Place<'_>,
    before: &Markup,
    offers: &[Offer],
) -> Markup {
    let there = place.region != me;
    let body = match visitor.may_act() {
        Err(why) => html! { p { (why) } },
        Ok(()) if there && *visitor == Visitor::Local => html! {
            p { b { (place.region) } " has to act, and knows its operators by their tokens: open the console of a gateway there." }
        },
        Ok(()) => html! {
            (before)
            @if there { p { b { (place.region) } " has to act: you will be asked for your token, by which it knows you." } }
            @for (verb, title, meaning, fields) in offers {
                details id=(verb) {
                    summary { (title) }
                    form.act method="post" action={ "/console/" (verb) } {
                        @for (name, value) in [("region", place.region), ("tenant", place.tenant), ("key", place.key), ("seen", place.seen)] {
                            input type="hidden" name=(name) value=(value);
                        }
                        p.soft { (meaning) }
                        (fields)
                        label for={ (verb) "-reason" } { "Why " span.soft { "journalled with the act" } }
                        textarea id={ (verb) "-reason" } name="reason" rows="2" required maxlength="1000" placeholder="the provider shows po_17, OPS-311" {}
                        @if let Some(name) = visitor.name() {
                            p { "Who " b { (name) } }
                        } @else {
                            label for={ (verb) "-actor" } { "Who " span.soft { "your name, journalled too" } }
                            input id={ (verb) "-actor" } name="actor" required maxlength="200" autocomplete="username" autocapitalize="none";
                        }
                        button type="submit" { "Look it over…" }
                    }
                }
            }
        },
    };
    section("decide", "Decide", None, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (0, "0 s"),
            (1, "1 s"),
            (59_000, "59 s"),
            (65_000, "1 m 05 s"),
            (7_260_000, "2 h 01 m"),
            (200_000_000, "2 d 7 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn dates_never_fail() {
        assert_eq!(date(1_767_225_600_000), "Thu, 01 Jan 2026 00:00:00 GMT");
        assert_eq!((date(-1), date(i64::MAX)), (date(0), "Fri, 31 Dec 9999 23:59:59 GMT".to_owned()));
    }

    #[test]
    fn numbers_have_commas_and_signs() {
        assert_eq!(
            (thousands(0), thousands(65_536), thousands(-21_845)),
            ("0".into(), "65,536".into(), "−21,845".into())
        );
    }

    #[test]
    fn a_text_stays_a_text_wherever_it_stands() {
        let evil = "\"><script>alert(1)</script>'&";
        let all = html! {
            (page(evil, evil, true, &html! { (mark("good", evil)) (countdown(5, evil)) }))
            (sign_in(evil, Some(evil)))
            (section(evil, evil, Some(evil), &html! {}))
            (table(evil, [vec![(evil, html! { (evil) }), (evil, html! { (evil) })]].into_iter()))
        };
        let text = all.into_string();
        assert!(!text.contains("<script>") && !text.contains("\"&gt;&lt;script"), "{text}");
        assert_eq!(text.matches("<script ").count(), 2, "the console's own, on two pages");
    }
}
