"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  document.querySelectorAll(".tools, [data-node]").forEach((each) => { each.hidden = false; });

  // On a phone the long sections wait to be opened, by their heading or from the contents.
  if (matchMedia("(max-width: 48rem)").matches) {
    ["tree", "mistakes", "probabilities", "depth", "words"].forEach((id) => {
      const part = get(id)?.querySelector(".part");
      if (part) part.open = false;
    });
  }
  const unfold = (element) => {
    for (let each = element; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  };
  const reach = (hash) => {
    const target = get(decodeURIComponent(hash.slice(1)));
    unfold(target?.matches("section") ? target.querySelector(".part") : target);
    return target;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) reach(link.hash);
  });
  reach(location.hash)?.scrollIntoView();
  addEventListener("beforeprint", () => document.querySelectorAll(".part").forEach((each) => { each.open = true; }));

  document.querySelectorAll("[data-fold]").forEach((button) => {
    button.onclick = () => document.querySelectorAll(".tree details").forEach((each, place) => {
      each.open = place === 0 || Boolean(button.dataset.fold);
    });
  });

  const wall = get("wall");
  if (!wall) return;
  const cards = [...wall.children].map((element) => ({
    element,
    sure: Number(element.dataset.sure),
    level: element.dataset.level,
    labels: element.dataset.label.split(" "),
    said: element.dataset.said.split(" "),
    name: element.querySelector(".is").textContent,
    prediction: element.querySelector("b").textContent,
    text: ["figcaption .is", "b", ".file"].map((part) => element.querySelector(part).textContent)
      .join(" ").toLowerCase(),
  }));
  const orders = {
    sure: (a, b) => b.sure - a.sure,
    unsure: (a, b) => a.sure - b.sure,
    label: (a, b) => a.name.localeCompare(b.name),
    said: (a, b) => a.prediction.localeCompare(b.prediction),
  };
  let under = "";

  const draw = () => {
    const text = get("text").value.trim().toLowerCase(), level = get("level").value;
    const [one, other] = get("pair").value.split(" ");
    const shown = cards.filter((card) => card.text.includes(text)
      && (!level || card.level === level)
      && (!under || card.labels.includes(under))
      && (!one || (card.labels.includes(one) && card.said.includes(other))
        || (card.labels.includes(other) && card.said.includes(one))));
    wall.replaceChildren(...shown.sort(orders[get("order").value]).map((card) => card.element));
    get("count").textContent = `${shown.length} of ${cards.length}`;
  };
  get("choose").oninput = get("choose").onchange = draw;
  get("choose").onsubmit = (event) => event.preventDefault();
  document.querySelectorAll("[data-node]").forEach((button) => {
    button.onclick = () => {
      under = button.dataset.node;
      get("under").textContent = `labelled ${button.dataset.name} ✕`;
      get("under").hidden = false;
      draw();
      reach("#mistakes").scrollIntoView();
    };
  });
  get("under").onclick = () => { under = ""; get("under").hidden = true; draw(); };
  draw();
})();
