// The console's script: brings the sections that change anew, counts windows down, and says aloud what is new. The page can be read without it.
//
// The server makes all markup; nothing is ever built from a text here (the page's policy forbids it). It must not act on a key.
"use strict";

(() => {
  // Milliseconds between two askings for a part, and how old a page may get before it is called old.
  const PARTS = { now: 2000, audit: 30000 };
  const OLD = 8000;
  // Seconds left at which a countdown is said aloud.
  const TELL_AT = [60, 30, 10, 5];

  const fresh = document.getElementById("fresh");
  const pause = document.getElementById("pause");
  const told = document.getElementById("told");
  let paused = false;
  let heard = performance.now();
  let problem = "";

  const tell = (text) => { told.textContent = text; };

  // As `span` in frame.rs writes it.
  const span = (ms) => {
    const seconds = Math.ceil(ms / 1000);
    const two = (number) => String(number).padStart(2, "0");
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds % 3600 / 60))} m`;
    return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
  };

  // When each countdown ends, by this page's clock.
  const ends = new WeakMap();
  const said = new Map();
  const countDown = () => {
    const now = performance.now();
    for (const count of document.querySelectorAll("[data-left-ms]")) {
      if (!ends.has(count)) ends.set(count, now + Number(count.dataset.leftMs));
      const left = ends.get(count) - now;
      const text = left > 0 ? span(left) : count.dataset.then;
      if (count.textContent !== text) count.textContent = text;
      const row = count.closest("#windows tr");
      if (row) tellOf(row.querySelector("th").textContent, left);
    }
  };
  const tellOf = (region, left) => {
    const next = left <= 0 ? 0 : TELL_AT.filter((second) => left <= second * 1000).pop();
    if (next === undefined || said.get(region) === next) return;
    said.set(region, next);
    tell(next === 0 ? `The window for ${region} is over.` : `The window for ${region}: ${next} seconds left.`);
  };

  // What is the same element in the section that takes its place.
  const nameOf = (element) => element.id || element.getAttribute("href");
  const attention = (section) => [...section.querySelectorAll("li")].map((line) => line.textContent.replace(/^[●▲■○] /, ""));

  const put = (old, section) => {
    const selection = document.getSelection();
    const reading = selection && !selection.isCollapsed && selection.intersectsNode(old);
    if (reading || old.outerHTML === section.outerHTML) return;
    if (old.id === "attention") {
      const before = new Set(attention(old));
      const news = attention(section).filter((line) => !before.has(line));
      if (news.length > 0) tell(news.join(". "));
      else if (before.size > 0 && attention(section).length === 0) tell("Nothing asks for you any more.");
    }
    const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const next = document.adoptNode(section);
    old.replaceWith(next);
    if (focused) {
      const same = [...next.querySelectorAll("a, button, input")].find((one) => nameOf(one) === focused);
      if (same) same.focus({ preventScroll: true });
    }
  };

  // Asks for a part; the answer is parsed without running anything in it.
  const bring = (part) => new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("GET", `/console/${part}${location.search}`);
    request.responseType = "document";
    request.timeout = 15000;
    request.onload = () => {
      if (request.status === 200 && request.response) {
        for (const section of request.response.querySelectorAll("section[data-live]")) {
          const old = document.getElementById(section.id);
          if (old) put(old, section);
        }
        if (part === "now") { heard = performance.now(); problem = ""; }
      } else {
        problem = request.status === 401 ? "signed out: reload to sign in" : `the gateway answered ${request.status}`;
      }
      done();
    };
    request.onerror = request.ontimeout = () => { problem = "the gateway does not answer"; done(); };
    request.send();
  });

  const loop = async (part) => {
    if (!paused && !document.hidden) await bring(part);
    setTimeout(loop, PARTS[part], part);
  };

  let wasOld = false;
  const showAge = () => {
    const age = performance.now() - heard;
    const old = age > OLD;
    const text = old || paused ? `as of ${span(age)} ago${problem ? `: ${problem}` : ""}` : "live";
    if (fresh.textContent !== text) fresh.textContent = text;
    fresh.classList.toggle("stale", old);
    if (old && !wasOld && !paused && !document.hidden) tell(`This page is old: ${problem || "no answer"}.`);
    wasOld = old;
  };

  if (document.querySelector("section[data-live]")) {
    fresh.hidden = pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Go on" : "Pause updates";
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) bring("now"); });
    for (const part of Object.keys(PARTS)) setTimeout(loop, PARTS[part], part);
    setInterval(showAge, 1000);
    showAge();
  }
  setInterval(countDown, 250);
  countDown();

  // A link to a form opens it.
  const openNamed = () => {
    const named = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (named instanceof HTMLDetailsElement) named.open = true;
  };
  addEventListener("hashchange", openNamed);
  openNamed();
})();
