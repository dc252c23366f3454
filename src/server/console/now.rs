//! The console's page, and its part that changes by the second: ring, regions, leases, windows,
//! lag. The words are those of `onceway status`.

use std::time::Duration;

use http::StatusCode;
use maud::{Markup, html};

use super::attention::{self, Beside, Counted, Line};
use super::chart;
use super::frame::{self, NOTHING, countdown, mark, millis, or_nothing, section, span, table, thousands};
use super::session::Visit;
use super::{jobs, key, lists, search};
use crate::gateway::authority::status::{AuthorityStatus, HindranceStatus, RegionStatus};
use crate::gateway::operator::dead_letters::JobsPage;
use crate::gateway::operator::doubt_lists::AllDoubts;
use crate::gateway::telemetry::lag_history::TrailPoint;
use crate::gateway::telemetry::{readiness::PeerStatus, status::Status};
use crate::protocol::ring::ARCS;
use crate::server::admin_http::Answer;

const LIVE: Option<&str> = Some("now");

pub(super) async fn whole(visit: &Visit<'_>) -> Answer {
    let (now, audit) = tokio::join!(part(visit), lists::audit(visit));
    let main = html! {
        h1.unseen { "Region " (visit.region()) }
        noscript { p.notice { "Without script this page does not change by itself: reload it." } }
        (now)
        (section("look-up", "Look a key up", None, &html! { (key::form("", "")) (search::form(&[])) }))
        (audit)
    };
    visit.page(StatusCode::OK, "console", &main)
}

pub(super) async fn part(visit: &Visit<'_>) -> Markup {
    let gateway = visit.gateway;
    let (status, doubts, accepted, findings) =
        tokio::join!(gateway.status(), lists::doubts(visit), jobs::all(visit), lists::found_lately(visit));
    let trails = gateway.lag_trails();
    let metrics = visit.metrics.render();
    let counted = Counted::of(&metrics);
    let (doubts_page, findings) = (doubts.as_ref().ok(), findings.as_ref().ok());
    let lines = attention::lines(&status, &Beside { doubts: doubts_page, findings, counted: &counted });
    html! {
        (first_lines(&lines))
        (section("summary", "This gateway", LIVE, &summary(&status)))
        (section("requests", "Requests by route", LIVE, &visit.rates.shown(&metrics)))
        (section("ring", "The ring and who owns it now", LIVE, &ring(&status)))
        div.pair {
            (section("windows", "What gained keys wait for", LIVE, &windows(&status.authority)))
            (section("leases", "Leases", LIVE, &leases(&status)))
        }
        (lists::queue(visit, &doubts, &status))
        (jobs::queue(&accepted, status.at_ms))
        (section("regions", "Regions", LIVE, &regions(&status, doubts_page, accepted.as_ref().ok())))
        (section("lag", "Observed lag", LIVE, &lag(&status, &trails)))
    }
}

fn first_lines(lines: &[Line]) -> Markup {
    let body = html! {
        @if lines.is_empty() { p { (mark("good", "Nothing asks for you.")) } }
        @else {
            ul.lines {
                @for line in lines {
                    li {
                        a href={ "#" (line.at) } {
                            @if line.act { (mark("bad", &line.text)) } @else { (mark("warn", &line.text)) }
                        }
                    }
                }
            }
        }
    };
    section("attention", "Now", LIVE, &body)
}

fn summary(status: &Status) -> Markup {
    let readiness = &status.readiness;
    let state = match (readiness.ready, readiness.serves) {
        (true, true) => mark("good", "ready, runs keys"),
        (true, false) => mark("warn", "ready, forwards only"),
        (false, _) => mark("bad", "not ready"),
    };
    let store = &status.store;
    let open = match &store.reason {
        Some(reason) => mark("bad", &format!("closed: {reason}")),
        None => html! {
            (mark("good", "open"))
            span.soft { " gate version " (or_nothing(store.gate_version)) ", heartbeat " (or_nothing(store.heartbeat)) }
        },
    };
    let config = if status.config.current {
        mark("good", "as in its files")
    } else {
        mark("warn", "not as in its files")
    };
    let rows = [
        ("State", state),
        ("Store", open),
        ("View", html! { "epoch " (status.epoch) span.soft { " digest " code { (short(&status.view)) } } }),
        ("Settings", html! { (config) span.soft { " shared " code { (short(&status.shared)) } } }),
        ("In flight", html! { (status.in_flight) }),
        ("Writes as", html! { code { (status.origin) } }),
        ("As of", html! { span data-at-ms=(status.at_ms) { (frame::date(status.at_ms)) } }),
    ];
    html! { dl.facts { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } } }
}

fn ring(status: &Status) -> Markup {
    let authority = &status.authority;
    if !authority.founded {
        return html! { p { "Not founded: run " code { "onceway init" } " once, when all regions are up." } };
    }
    let arcs = |share: f64| (share * f64::from(ARCS)).round() as i64;
    let counted = |arcs: i64, share: f64| {
        html! { span.number { (thousands(arcs)) } span.soft { " " (format!("{:.1} %", share * 100.0)) } }
    };
    let row = |region: &RegionStatus| {
        let home = status.shares.get(&region.name).copied().unwrap_or(0.0);
        let (now, at_home) = (arcs(region.share), arcs(home));
        let more = if now > at_home { "+" } else { "" };
        let differs = html! { b { (more) (thousands(now - at_home)) } };
        vec![
            ("Region", named(status, region)),
            ("Standing", standing(region)),
            ("Arcs owned now", counted(now, region.share)),
            ("Arcs at home", counted(at_home, home)),
            ("Differs", html! { @if now == at_home { span.soft { "as at home" } } @else { (differs) } }),
            ("Stands so", html! { "since epoch " (region.since_epoch) }),
            ("Share, tick: at home", chart::share(region.share, home)),
        ]
    };
    html! {
        (table("Arcs that each region owns in the view, against its home arcs", authority.regions.iter().map(row)))
        p.soft { (thousands(i64::from(ARCS))) " arcs, epoch " (authority.epoch) "." }
    }
}

fn named(status: &Status, region: &RegionStatus) -> Markup {
    html! { (region.name) @if region.name == status.region { span.soft { " this one" } } }
}

fn standing(region: &RegionStatus) -> Markup {
    match region.standing {
        _ if !region.in_ring => mark("none", "left the ring"),
        "serving" if region.upstream_failing => mark("bad", "serving, upstream fails"),
        "serving" if region.state == "runs keys" => mark("good", "serving"),
        "serving" if region.state == "silent" => mark("bad", "serving, but silent"),
        "serving" => mark("warn", "serving, runs no keys"),
        "sealed" if region.upstream_failing => mark("warn", "sealed: upstream is sick"),
        "sealed" => mark("warn", "sealed"),
        "drained" => mark("warn", "drained"),
        "lost" => mark("bad", "lost"),
        other => mark("none", other),
    }
}

fn regions(status: &Status, doubts: Option<&AllDoubts>, jobs: Option<&JobsPage>) -> Markup {
    let row = |region: &RegionStatus| {
        let (own, peer) = (region.name == status.region, status.peers.get(&region.name));
        let heard = peer.and_then(|peer| peer.heard_ms_ago).map(|ms| format!("{} ago", span(ms)));
        let epoch = peer.map_or(own.then_some(status.epoch), |peer| peer.epoch);
        vec![
            ("Region", named(status, region)),
            ("State", state(status, own, peer)),
            ("Heard", html! { (or_nothing(heard)) }),
            ("Round trip", html! { (millis(peer.and_then(|peer| peer.rtt_ms))) }),
            ("Epoch", html! { (or_nothing(epoch)) }),
            ("Its rows here", peer.map_or(html! { (NOTHING) }, |peer| rows(status, region, peer))),
            ("Upstream", upstream(status, region, peer)),
            ("Store", html! { "generation " (region.generation) ", mark " (region.mark) }),
            ("In doubt", html! { (in_doubt(&region.name, doubts)) }),
            ("Dead letters", html! { (dead(&region.name, jobs)) }),
            ("Trouble", html! { (or_nothing(peer.and_then(|peer| peer.trouble.as_ref()))) }),
        ]
    };
    table("How each region is, as this gateway sees it", status.authority.regions.iter().map(row))
}

/// Number of keys in doubt that a region owns, as far as the first page of the list shows them.
fn in_doubt(name: &str, page: Option<&AllDoubts>) -> String {
    let Some(page) = page.filter(|page| !page.silent.contains_key(name)) else { return NOTHING.to_owned() };
    let count = page.doubts.iter().filter(|doubt| doubt.owner.as_deref() == Some(name)).count();
    if page.more { format!("{count} or more") } else { count.to_string() }
}

fn dead(name: &str, page: Option<&JobsPage>) -> String {
    let known = |page: &&JobsPage| page.silent.iter().flatten().all(|(silent, _)| silent != name);
    page.filter(known).map_or(NOTHING.to_owned(), |page| {
        page.jobs.iter().filter(|job| job.region == name && job.state == "dead").count().to_string()
    })
}

fn state(status: &Status, own: bool, peer: Option<&PeerStatus>) -> Markup {
    match peer {
        Some(peer) if !peer.up => mark("bad", "silent"),
        Some(peer) if peer.serving => mark("good", "up, serving"),
        Some(_) => mark("warn", "up, not serving"),
        None if !own => mark("none", "not asked"),
        None if status.readiness.serves => mark("good", "runs keys"),
        None => mark("warn", "forwards only"),
    }
}

fn rows(status: &Status, region: &RegionStatus, peer: &PeerStatus) -> Markup {
    let copy = status.subscriptions.as_ref().map(|all| all.iter().find(|copy| copy.from == region.name));
    let rows = match copy {
        Some(Some(copy)) if copy.ready && copy.streaming => mark("good", "stream in"),
        Some(Some(copy)) if copy.ready => mark("bad", "stand still"),
        Some(Some(_)) => mark("warn", "first copy runs"),
        Some(None) => mark("bad", "no subscription"),
        None => html! { span.soft { "the store does not say" } },
    };
    html! { (rows) span.soft { " to heartbeat " (or_nothing(peer.applied)) } }
}

fn upstream(status: &Status, region: &RegionStatus, peer: Option<&PeerStatus>) -> Markup {
    let own = status.upstream.as_ref().filter(|_| region.name == status.region);
    match (peer, own) {
        (Some(_), _) if region.upstream_failing => mark("bad", "fails its checks"),
        (Some(_), _) => html! { span.soft { "no complaint" } },
        (None, Some(upstream)) if upstream.well => mark("good", "well"),
        (None, Some(_)) => mark("bad", "fails its checks"),
        (None, None) => html! { span.soft { "not checked" } },
    }
}

fn leases(status: &Status) -> Markup {
    let authority = &status.authority;
    let row = |region: &RegionStatus| {
        let votes = if authority.voters.contains(&region.name) { "yes" } else { "no" };
        let (name, lease) = (html! { (region.name) }, lease(status, region));
        vec![("Region", name), ("Lease", lease), ("Votes", html! { (votes) })]
    };
    let in_ring = authority.regions.iter().filter(|region| region.in_ring);
    let is_region = |voter: &str| authority.regions.iter().any(|region| region.name == voter);
    let others: Vec<&str> =
        authority.voters.iter().map(String::as_str).filter(|voter| !is_region(voter)).collect();
    html! {
        (table("Each region's lease, as far as it is known here", in_ring.map(row)))
        p.soft {
            "Failover is " (authority.mode) "."
            @if !others.is_empty() { " Witnesses: " (others.join(", ")) "." }
            @if let Some(epoch) = authority.pending { " Keys are given up for epoch " (epoch) ", which is not agreed yet." }
        }
    }
}

/// Writes a region's lease: of others only the view and the replies to pings are known.
fn lease(status: &Status, region: &RegionStatus) -> Markup {
    let own = &status.authority.lease;
    let peer = status.peers.get(&region.name).filter(|peer| peer.up);
    match (region.name == status.region, region.standing, peer) {
        (true, _, _) if own.held => {
            let left = format!("held, {:.1} s left unless renewed", own.left_ms as f64 / 1_000.0);
            mark("good", &left)
        }
        (true, "serving", _) => mark("bad", "not held: this gateway runs no keys"),
        (true, _, _) => mark("warn", "not held"),
        (false, "lost", _) => mark("bad", "over: a majority of the voters saw it end"),
        (false, "serving", Some(peer)) if peer.serving => mark("good", "runs keys, as it says"),
        (false, "serving", Some(_)) => mark("warn", "runs no keys, as it says"),
        (false, "serving", None) => mark("bad", "silent: over once no majority of the voters renews it"),
        (false, _, _) => mark("none", "owns no keys"),
    }
}

fn windows(authority: &AuthorityStatus) -> Markup {
    if authority.opening.is_empty() {
        return html! { p { (mark("good", "Nothing: every key that this region owns may run.")) } };
    }
    let row = |missing: &HindranceStatus| {
        let left = match (missing.left_ms, missing.needs_operator) {
            (Some(left), _) => html! { (countdown(left, "over")) " left" },
            (None, true) => mark("bad", "needs an operator"),
            (None, false) => mark("warn", "comes by itself"),
        };
        let [region, what, text] =
            [&*missing.region, missing.what, &*missing.text].map(|text| html! { (text) });
        vec![("Region", region), ("What", what), ("Left", left), ("Meaning", text)]
    };
    table("What keeps keys that this region gained from starting", authority.opening.iter().map(row))
}

fn lag(status: &Status, trails: &std::collections::BTreeMap<String, Vec<TrailPoint>>) -> Markup {
    if status.peers.is_empty() {
        return html! { p.soft { "There is no other region." } };
    }
    let largest = trails.values().flatten().filter_map(|point| point.lag).max().unwrap_or_default();
    let most = chart::scale(largest);
    let oldest = trails.values().filter_map(|points| points.first()).map(|point| point.age).max();
    let minutes = chart::minutes(oldest.unwrap_or_default());
    let over = if minutes == 1 { "Last minute".to_owned() } else { format!("Last {minutes} minutes") };
    let row = |(name, peer): (&String, &PeerStatus)| {
        let points = trails.get(name).map_or(&[][..], Vec::as_slice);
        vec![
            ("Copy", html! { "behind " (name) }),
            // A silent region's last lag is old and says nothing about rows that are missing
            // now.
            (
                "Now",
                html! { span.number { (millis(peer.lag_ms)) } @if !peer.up { " " span.soft { "when it last answered" } } },
            ),
            ("Largest of ten minutes", html! { span.number { (millis(peer.lag_max_ms)) } }),
            (over.as_str(), chart::trail(&story(name, points, &over), points, minutes, most)),
        ]
    };
    let end = most.as_millis();
    html! {
        (table("How far this region's copies are behind", status.peers.iter().map(row)))
        p.soft { "Upper bounds. The lines end now and share one scale, 0 to " (thousands(i64::try_from(end).unwrap_or(i64::MAX))) " ms; grey: the region did not answer." }
    }
}

/// Writes a line in words, for readers who do not see the drawing.
fn story(name: &str, points: &[TrailPoint], over: &str) -> String {
    let lags: Vec<Duration> = points.iter().filter_map(|point| point.lag).collect();
    match (lags.iter().min(), lags.iter().max(), lags.last()) {
        (Some(least), Some(most), Some(last)) => {
            let [least, most, last] = [least, most, last].map(Duration::as_millis);
            format!("Lag behind {name}, {over}: {least} to {most} ms, {last} ms at the end")
        }
        _ => format!("Lag behind {name}: not measured yet"),
    }
}

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}
