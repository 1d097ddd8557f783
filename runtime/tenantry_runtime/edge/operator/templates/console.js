// Replaces the page's main part by its newer self; what does not come leaves the older, marked as such.
const main = () => document.querySelector("main");
const state = document.querySelector("#state");
async function refresh() {
  if (document.hidden) return;
  try {
    const response = await fetch(location.pathname, { credentials: "same-origin" });
    if (!response.ok) throw new Error(String(response.status));
    const next = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("main");
    for (const details of main().querySelectorAll("details[open]")) {
      const same = next.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"]`);
      if (same) same.open = true;
    }
    main().replaceWith(next);
    state.textContent = "live";
    state.className = "good";
  } catch (error) {
    state.textContent = "no answer";
    state.className = "bad";
  }
}
setInterval(refresh, 2000);
