//! The console in a browser: signing in, the queue, a key settled, a region lost, on a desktop, on
//! a phone and in the dark. The tests look at the page as rendered: texts, colours and widths.
//! Screenshots: docs/testing.md.

mod browser;

use crate::support::solo::{TOKEN, alone, doubt, retry, solo};
use crate::support::*;
use browser::Browser;

const FAILOVER: &str = "\n[failover]\nlease = \"3s\"\nfloor = \"40s\"\nstable_for = \"100ms\"\n";
const PHONE: u32 = 360;

#[test]
fn a_person_signs_in_and_out() {
    run(async {
        let _alone = alone().await;
        let base = solo().await.region.admin();
        let Some(browser) = Browser::start("signing in to the console").await else { return };
        browser.open(&base).await;
        assert_eq!(browser.url().await, format!("{base}/console"));
        browser.size(PHONE, 740).await;
        browser.picture("sign-in").await;
        browser.fill("#token", "something else entirely").await;
        browser.click("form button").await;
        until_seen(&browser, "the refusal", "[role=alert]", "not the admin token").await;
        browser.fill("#token", TOKEN).await;
        browser.click("form button").await;
        until_seen(&browser, "the console", "#summary", "runs keys").await;
        assert_eq!(browser.url().await, format!("{base}/console"), "nothing of the token in the address");
        let cookie = &browser.cookies().await[0];
        assert!(cookie["httpOnly"] == true && cookie["sameSite"] == "Strict", "{cookie}");
        let kept =
            browser.run("return localStorage.length + sessionStorage.length + document.cookie.length").await;
        assert_eq!(kept, 0);
        fits(&browser, "the console of one region").await;
        browser.click(".tools form button").await;
        until_seen(&browser, "the sign-in", "label[for=token]", "Admin token").await;
        assert_eq!(browser.text("#summary").await, "");
        assert_eq!(browser.cookies().await.as_array().map(Vec::len), Some(0));
        let complaints = browser.complaints().await;
        assert!(complaints.iter().all(|line| line.contains("401")), "{complaints:?}");
        browser.close().await;
    });
}

async fn fits(browser: &Browser, what: &str) {
    let wide = browser
        .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    assert_eq!(wide, 0, "{what} is wider than the screen");
}

async fn shows(browser: &Browser, selector: &str, text: &str) {
    let shown = browser.text(selector).await;
    assert!(shown.contains(text), "no {text:?} in {selector}: {shown}");
}

async fn look_at(browser: &Browser, region: &Region) {
    browser.open(&format!("{}/console", region.admin())).await;
}

async fn until_seen(browser: &Browser, what: &str, selector: &str, text: &str) {
    until(what, async || browser.text(selector).await.contains(text)).await;
}

#[test]
fn the_console_shows_an_incident_and_settles_a_key() {
    run(async {
        let Some(browser) = Browser::start("the console in a browser").await else { return };
        let deployment = deployment_with(Duration::from_millis(20), None, FAILOVER).await;
        let region = &deployment.regions[0];
        let evil = loop {
            let candidate = format!("<img/src=x/onerror=document.title=1>{}", key("k"));
            let path = onceway::gateway::operator::percent::encode(&candidate);
            if key_status(region, &path).await["order"][0] == region.name.as_str() {
                break candidate;
            }
        };
        doubt(&region.public(), &evil).await;
        browser.size(1280, 900).await;
        browser.open(&region.admin()).await;
        healthy(&browser, &deployment, &evil).await;
        settled(&browser, &deployment, &evil).await;
        lost(&browser, &deployment).await;
        audited(&browser, &deployment).await;
        nothing_was_blocked(&browser).await;
        browser.close().await;
        deployment.shut_down().await.unwrap();
    });
}

/// Checks each section while all is well except for one key.
async fn healthy(browser: &Browser, deployment: &Deployment, evil: &str) {
    let home = &deployment.regions[0];
    shows(browser, "#attention", "1 key is in doubt").await;
    for region in &deployment.regions {
        for place in ["#ring", "#regions"] {
            shows(browser, place, region.name.as_str()).await;
        }
    }
    let ring = browser.text("#ring").await;
    assert_eq!(ring.matches("as at home").count(), 3, "{ring}");
    until_seen(browser, "the lease to be held", "#leases", "held, ").await;
    shows(browser, "#windows", "Nothing").await;
    assert_eq!(browser.run("return document.querySelectorAll('#lag svg.trail').length").await, 2);
    assert!(!browser.text("#lag").await.contains("when it last answered"));
    shows(browser, "#doubts", evil).await;
    for words in ["No key ran at risk.", "No double and no late answer"] {
        shows(browser, "#audit", words).await;
    }
    assert_eq!(browser.run("return document.images.length + (document.title === '1')").await, 0);
    until_seen(browser, "the page to be live", "#fresh", "live").await;
    // Later changes appear without a reload, and so do removals.
    let later = key("later");
    let owner = key_status(home, &later).await["owner"].as_str().unwrap().to_owned();
    doubt(&home.public(), &later).await;
    let there = deployment.region(&owner).unwrap();
    look_at(browser, there).await;
    until_seen(browser, "the key in its owner's queue", "#doubts", &later).await;
    let words = ["key", "release", "acme", &later, "--reason", "the test says so", "--actor", "ann"];
    // Once the attempt is over: a status alone does not end it.
    operated(there, &words).await;
    until("the key to leave the queue", async || !browser.text("#doubts").await.contains(&later)).await;
    look_at(browser, home).await;
    late(browser, deployment).await;
    browser.picture("desktop").await;
}

/// Holds the rows of another region for a while, and checks that the lag is shown and drawn.
async fn late(browser: &Browser, deployment: &Deployment) {
    let points = async || {
        let drawn =
            browser.run("return document.querySelector('#lag polyline')?.getAttribute('points') ?? ''").await;
        drawn.as_str().unwrap_or_default().split(' ').count()
    };
    deployment.links.freeze_rows(0, 2).unwrap();
    until("a second of lag on the page", async || {
        let lag = browser.text("#lag tbody tr").await;
        let shown = lag.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).next();
        lag.contains("behind ap-south") && shown.is_some_and(|ms| ms > 1_000.0)
    })
    .await;
    deployment.links.heal(0, 2, false).unwrap();
    until("a line of the lag", async || points().await > 1).await;
}

async fn settled(browser: &Browser, deployment: &Deployment, evil: &str) {
    let home = &deployment.regions[0];
    browser.click("#doubts a[href$='#settle']").await;
    let open = async || browser.run("return document.querySelector('#settle')?.open ?? false").await == true;
    until("the link to open the form", open).await;
    browser.fill("#status", "201").await;
    browser.fill("#body", "{\"id\":\"po_17\"}").await;
    browser.fill("#settle-actor", "ann").await;
    browser.click("#settle button").await;
    assert!(browser.text("h1").await.starts_with("Key "), "the browser asks for a reason first");
    browser.fill("#settle-reason", "the provider shows po_17, OPS-311").await;
    browser.picture("key").await;
    browser.click("#settle button").await;
    until_seen(browser, "the second look", "h1", "Settle this key?").await;
    browser.picture("look-over").await;
    browser.click("button.weighty").await;
    until_seen(browser, "what was done", ".notice", "every retry is given this answer").await;
    let answer = retry(&home.public(), evil).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (201, "{\"id\":\"po_17\"}".to_owned()));
    look_at(browser, home).await;
    assert!(!browser.text("#doubts").await.contains(evil), "{}", browser.text("#doubts").await);
    // Rows of the home reach the others by replication: the look-up shows when.
    until("the record in all three regions", async || {
        look_at(browser, home).await;
        browser.fill("#tenant", "acme").await;
        browser.fill("#key", evil).await;
        browser.click(".look-up button").await;
        until_seen(browser, "the key's page", "h1", "Key ").await;
        let page = browser.text("main").await;
        deployment.regions.iter().all(|region| page.contains(&format!("In {}: settled", region.name)))
    })
    .await;
    browser.size(PHONE, 740).await;
    fits(browser, "a key's page").await;
    browser.picture("key-phone").await;
}

/// Loses a region, and checks the owner of its arcs and the window's countdown.
async fn lost(browser: &Browser, deployment: &Deployment) {
    let (home, gone) = (&deployment.regions[0], &deployment.regions[1]);
    let name = gone.name.as_str();
    browser.size(1280, 900).await;
    look_at(browser, home).await;
    gone.act(Action::Kill, Part::Both).await.unwrap();
    until_seen(browser, "a window to run", "#windows .count", " s").await;
    shows(browser, "#attention", &format!("{name} is lost")).await;
    let ring = browser.text("#ring").await;
    assert!(ring.contains("lost") && ring.contains("+") && ring.contains("−"), "{ring}");
    let said = browser.text("#told").await;
    assert!(said.contains(name) || said.contains("window"), "nobody was told: {said:?}");
    let left = async || {
        let text = browser.text("#windows .count").await;
        text.trim_end_matches(" s").parse::<u64>().unwrap_or_else(|_| panic!("{text}"))
    };
    let before = left().await;
    until("the window to count down", async || left().await < before).await;
    browser.picture("lost").await;
    for (scheme, back, picture) in
        [("dark", "rgb(22, 24, 27)", "dark"), ("light", "rgb(255, 255, 255)", "phone")]
    {
        browser.scheme(scheme).await;
        let colour = browser.run("return getComputedStyle(document.body).backgroundColor").await;
        assert_eq!(colour, back);
        contrasts(browser, scheme).await;
        if picture == "phone" {
            browser.size(PHONE, 740).await;
            fits(browser, "the console").await;
        }
        browser.picture(picture).await;
    }
}

/// The audit lists a key that the lost region may have run, and the journal's findings.
async fn audited(browser: &Browser, deployment: &Deployment) {
    let (home, gone) = (&deployment.regions[0], &deployment.regions[1]);
    let (names, mut risky) = ([gone.name.as_str(), home.name.as_str()], key("risky"));
    while key_status(home, &risky).await["order"].as_array().unwrap()[..2] != names {
        risky = key("risky");
    }
    let request = post(&home.public(), "/v1/notes", &risky, BODY);
    until("the window to be over", async || ask(request.clone()).await.status == 201).await;
    let client = home.cluster.connect(DATABASE).await.unwrap();
    let double = "insert into onceway.journal (kind, tenant, key) values ('double', 'acme', 'charged-twice')";
    client.batch_execute(double).await.unwrap();
    browser.size(1280, 900).await;
    look_at(browser, home).await;
    let rows =
        browser.run("return [...document.querySelectorAll('#audit tr')].map((row) => row.innerText)").await;
    let row = |key: &str| {
        let mut texts = rows.as_array().unwrap().iter().filter_map(|row| row.as_str());
        texts.find(|text| text.contains(key)).unwrap_or_else(|| panic!("no {key}: {rows}"))
    };
    let run = row(&risky);
    assert!(run.contains("clean") && run.contains("notes") && run.contains(gone.name.as_str()), "{run}");
    assert!(row("charged-twice").contains("double"));
    browser.picture("audit").await;
}

/// Checks that every visible text has a contrast of 4.5 to 1 (WCAG 2.2, 1.4.3).
async fn contrasts(browser: &Browser, scheme: &str) {
    let weak = browser
        .run(
            "const parts = (text) => text.match(/[\\d.]+/g).map(Number);
             const light = (text) => { const [r, g, b] = parts(text).map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
             const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((parts(c)[3] ?? 1) > 0) return c; } return 'rgb(255,255,255)'; };
             const weak = [];
             for (const e of document.querySelectorAll('body *')) {
               if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
               const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
               if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(e.outerHTML.slice(0, 120));
             }
             return weak;",
        )
        .await;
    assert_eq!(weak, json!([]), "{scheme}");
}

/// Checks that the browser had no complaint, and that it would have reported one.
async fn nothing_was_blocked(browser: &Browser) {
    let complaints = browser.complaints().await;
    assert_eq!(complaints, Vec::<String>::new());
    browser.run("document.body.setAttribute('style', 'color: red')").await;
    let complaints = browser.complaints().await;
    assert!(complaints.iter().any(|line| line.contains("Content Security Policy")), "{complaints:?}");
}
