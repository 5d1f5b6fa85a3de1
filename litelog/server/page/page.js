"use strict";
(() => {
  const PATIENCE = 15000, PAUSE = 250;
  let timer = 0, typing = 0, asking = null, current = true;

  // Makes one element as another is: what is the same is not touched, so that scroll, focus, selection and what is open stay.
  function become(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const wanted = new Set([...fresh.children].map((each) => each.dataset.key).filter(Boolean));
    const known = new Map();
    for (const each of [...old.children]) {
      const key = each.dataset.key;
      if (key && !wanted.has(key)) each.remove();
      else if (key) known.set(key, each);
    }
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = next.dataset?.key;
      const match = key ? known.get(key) : at && !at.dataset?.key && at.nodeName === next.nodeName ? at : null;
      if (!match) { old.insertBefore(document.adoptNode(next), at); continue; }
      if (match === at) at = at.nextSibling; else old.insertBefore(match, at);
      become(match, next);
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    if (fresh.body.dataset.build !== document.body.dataset.build) { location.reload(); return; }
    offerCopies(fresh);
    const focused = document.activeElement;
    for (const part of ["header", "main", "footer", "link[rel=icon]"]) {
      become(document.querySelector(part), fresh.querySelector(part));
    }
    if (document.title !== fresh.title) document.title = fresh.title;
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    current = true;
  }

  // A button beside each command. Where the browser does not let pages copy, the command can be selected.
  function offerCopies(root) {
    if (!navigator.clipboard) return;
    for (const command of root.querySelectorAll(".command:not(:has(button))")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy " + command.textContent);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(command.querySelector("code").textContent);
        button.textContent = "Copied";
      });
      command.append(button);
    }
  }

  function say(words) {
    if (!current) return;
    current = false;
    const header = document.querySelector("header");
    header.className = "verdict bad";
    header.querySelector(".mark").textContent = "?";
    document.getElementById("words").textContent = words;
    document.title = "? " + words + " · litelog";
  }

  async function refresh() {
    clearTimeout(timer);
    asking?.abort();
    const mine = asking = new AbortController();
    const late = setTimeout(() => mine.abort("late"), PATIENCE);
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: mine.signal });
      const text = await answer.text();
      if (mine !== asking) return;
      if (answer.ok) show(text);
      else say(answer.status === 401 ? "Not known: the token has changed, load the page again" : "Not known: the daemon answers " + answer.status);
    } catch {
      if (mine !== asking) return;
      say("Not known: the daemon does not answer");
    } finally {
      clearTimeout(late);
    }
    wait();
  }

  function wait() {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(refresh, 1000 * document.body.dataset.refresh);
  }

  function filter() {
    const wanted = new URLSearchParams({ q: document.getElementById("q").value });
    history.replaceState(null, "", wanted.get("q") ? "?" + wanted : location.pathname);
    refresh();
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { refresh(); return; }
    clearTimeout(timer);
    const asked = asking;
    asking = null;
    asked?.abort();
  });
  document.getElementById("q").addEventListener("input", () => {
    clearTimeout(typing);  // apart from the other timer: an answer that arrives meanwhile restarts that one
    typing = setTimeout(filter, PAUSE);
  });
  document.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); filter(); });
  offerCopies(document);
  wait();
})();
