// Pictures of one line each, in the colour of the text around them.

import { html } from "./lib.js";

const PATHS = /** @type {Record<string, string>} */ ({
  overview: "M3 3h7v8H3zM14 3h7v5h-7zM14 12h7v9h-7zM3 15h7v6H3z",
  groups: "M12 3 2.5 8 12 13l9.5-5zM2.5 12.5 12 17.5l9.5-5M2.5 17 12 22l9.5-5",
  letters: "M3 5h18v14H3zM3 6l9 7 9-7",
  replays: "M3 12a9 9 0 1 1 3 6.7M3 20v-5h5",
  sources: "M12 3c4.4 0 8 1.3 8 3s-3.6 3-8 3-8-1.3-8-3 3.6-3 8-3zM4 6v6c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12v6c0 1.7 3.6 3 8 3s8-1.3 8-3v-6",
  incidents: "M12 3 1.8 20.5h20.4zM12 9.5v5M12 17.5v.2",
  approvals: "M9 12.5l2.2 2.2L15.5 10M12 2.5l8 3v6c0 5-3.4 8.5-8 10-4.6-1.5-8-5-8-10v-6z",
  audit: "M5 3h10l4 4v14H5zM9 9h6M9 13h6M9 17h4",
  tokens: "M14.5 9.5a5 5 0 1 0-4 4.9V17H13v2.5h2.5V22H20v-4.2zM8 8v.2",
  settings: "M4 6h9M17 6h3M4 12h3M11 12h9M4 18h9M17 18h3M15 4v4M9 10v4M15 16v4",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM20.5 20.5l-5-5",
  menu: "M4 6h16M4 12h16M4 18h16",
  close: "M5 5l14 14M19 5 5 19",
  left: "M15 4 7 12l8 8",
  right: "M9 4l8 8-8 8",
  down: "M4 9l8 8 8-8",
  up: "M12 20V5M5 12l7-7 7 7",
  sun: "M12 7a5 5 0 1 1 0 10 5 5 0 0 1 0-10zM12 1.5v2M12 20.5v2M1.5 12h2M20.5 12h2M4.6 4.6 6 6M18 18l1.4 1.4M4.6 19.4 6 18M18 6l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  auto: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM12 3v18",
  copy: "M9 9h11v12H9zM5 15H4V3h11v2",
  check: "M4 12.5l5.5 5.5L20 7",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  out: "M14 4h6v16h-6M3 12h11M10 8l4 4-4 4",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.5 1.5M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.5-1.5",
});

export const Icon = (/** @type {{name: string, size?: number}} */ { name, size = 16 }) => html`<svg
  class="icon" viewBox="0 0 24 24" width=${size} height=${size} fill="none" stroke="currentColor" stroke-width="1.8"
  stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name] ?? ""} /></svg>`;
