"use strict";

// Zooms one picture: "fit" keeps it inside the pane, a number shows each pixel so many times.
const ZOOMS = ["fit", "1", "2", "4"];

function setUp(article) {
  const pane = article.querySelector(".pane");
  const stage = article.querySelector(".stage");
  const divider = article.querySelector(".divider");
  const slider = article.querySelector(".slider");
  const views = [...article.querySelectorAll(".view")];
  const chosen = (use) => article.querySelector(`input[data-use="${use}"]:checked`).value;

  function split(percent) {
    const at = Math.min(100, Math.max(0, percent));
    slider.value = String(at);
    slider.setAttribute("aria-valuetext", `before up to ${Math.round(at)} percent`);
    divider.style.left = `${at}%`;
    for (const image of article.querySelectorAll(".after")) {
      image.style.clipPath = `inset(0 0 0 ${at}%)`;
    }
  }

  function show() {
    const kind = chosen("kind");
    const zoom = chosen("zoom");
    const current = views.find((view) =>
      view.dataset.kind === kind && (kind === "map" || view.dataset.place === chosen("place")));
    for (const view of views) view.hidden = view !== current;
    divider.hidden = kind !== "compare";
    slider.disabled = kind !== "compare";
    article.querySelector(".scale").hidden = kind !== "map";
    article.querySelector(".caption").textContent = current.dataset.caption;
    pane.classList.toggle("fit", zoom === "fit");
    pane.classList.toggle("large", zoom === "2" || zoom === "4");
    for (const image of current.querySelectorAll("img:not(.after)")) {
      image.style.width = zoom === "fit" ? "" : `${image.getAttribute("width") * zoom}px`;
      image.style.height = zoom === "fit" ? "" : `${image.getAttribute("height") * zoom}px`;
    }
  }

  // Zoom so that the point of the picture under (x, y) of the window stays where it is.
  function zoomTo(value, x, y) {
    const radio = article.querySelector(`input[data-use="zoom"][value="${value}"]`);
    if (!radio || radio.checked) return;
    const before = stage.getBoundingClientRect();
    const fraction = [(x - before.left) / before.width, (y - before.top) / before.height];
    radio.checked = true;
    show();
    const after = stage.getBoundingClientRect();
    pane.scrollLeft += after.left + fraction[0] * after.width - x;
    pane.scrollTop += after.top + fraction[1] * after.height - y;
  }

  function middle() {
    const box = pane.getBoundingClientRect();
    return [box.left + pane.clientWidth / 2, box.top + pane.clientHeight / 2];
  }

  function step(by, x, y) {
    const index = ZOOMS.indexOf(chosen("zoom")) + by;
    if (index >= 0 && index < ZOOMS.length) zoomTo(ZOOMS[index], x, y);
  }

  let settled = chosen("zoom");
  article.addEventListener("change", (event) => {
    if (event.target.dataset.use === "zoom") {
      const value = event.target.value;
      article.querySelector(`input[data-use="zoom"][value="${settled}"]`).checked = true;
      zoomTo(value, ...middle());
    } else {
      show();
    }
    settled = chosen("zoom");
  });
  slider.addEventListener("input", () => split(Number(slider.value)));

  stage.addEventListener("pointerdown", (event) => {
    if (chosen("kind") !== "compare" || event.button !== 0) return;
    stage.setPointerCapture(event.pointerId);
    follow(event);
  });
  function follow(event) {
    if (!stage.hasPointerCapture(event.pointerId)) return;
    const box = stage.getBoundingClientRect();
    split(100 * (event.clientX - box.left) / box.width);
  }
  stage.addEventListener("pointermove", follow);
  stage.addEventListener("dblclick", (event) => {
    const next = ZOOMS[(ZOOMS.indexOf(chosen("zoom")) + 1) % ZOOMS.length];
    zoomTo(next, event.clientX, event.clientY);
    settled = chosen("zoom");
  });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    step(event.deltaY < 0 ? 1 : -1, event.clientX, event.clientY);
    settled = chosen("zoom");
  }, { passive: false });
  article.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "+" || event.key === "=") step(1, ...middle());
    else if (event.key === "-" || event.key === "\u2212") step(-1, ...middle());
    else if (event.key === "0") zoomTo("fit", ...middle());
    else return;
    event.preventDefault();
    settled = chosen("zoom");
  });

  split(50);
  show();
}

for (const article of document.querySelectorAll("article")) setUp(article);
