"use strict";
// Puts each new View into the page. Without this script the page stays as it was loaded.
const live = document.getElementById("live");
const age = document.getElementById("age");
const news = document.getElementById("news");
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
let trouble = "";

function show(html) {
  const open = [...live.querySelectorAll("details[open]")].map((each) => each.id);
  live.innerHTML = html; // the agent escapes what comes from others, and the policy of the page runs no script in it
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  const summary = live.firstElementChild.dataset.summary;
  if (news.textContent !== summary) news.textContent = summary; // a screen reader reads it when it changes, not each second
}

function showAge() {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - live.firstElementChild.dataset.at));
  age.textContent = trouble || `${seconds} s ago`;
  age.className = trouble || seconds > 15 ? "stale" : "";
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch(`live?after=${live.firstElementChild.dataset.at}&wait=30`, { cache: "no-store" });
      if (!answer.ok) throw new Error((await answer.text()).slice(0, 200));
      show(await answer.text());
      trouble = "";
      await pause(3000);
    } catch (error) {
      trouble = `no newer values: ${error.message}`;
      await pause(5000);
    }
    showAge();
    while (document.hidden) await pause(1000); // the page is not shown: the agent is not asked
  }
}

setInterval(showAge, 1000);
follow();
