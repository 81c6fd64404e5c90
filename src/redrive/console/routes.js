// Every page: its address, its file, and its place in the menu.

/**
 * @typedef {{path: string, load: () => Promise<{default: (params: any) => any}>}} Route
 * @typedef {{path: string, name: string, icon: string, role?: string, keys?: string}} Entry
 */

/** @type {Route[]} */
export const ROUTES = [
  { path: "/", load: () => import("./pages/overview.js") },
  { path: "/groups", load: () => import("./pages/groups.js") },
  { path: "/groups/:id", load: () => import("./pages/group.js") },
  { path: "/letters", load: () => import("./pages/letters.js") },
  { path: "/letters/:id", load: () => import("./pages/letter.js") },
  { path: "/replays", load: () => import("./pages/replays.js") },
  { path: "/replays/new", load: () => import("./pages/replay_new.js") },
  { path: "/replays/:id", load: () => import("./pages/replay.js") },
  { path: "/sources", load: () => import("./pages/sources.js") },
  { path: "/sources/:name", load: () => import("./pages/source.js") },
  { path: "/dead-letter-queues/:queue", load: () => import("./pages/dead_queues.js") },
  { path: "/incidents", load: () => import("./pages/incidents.js") },
  { path: "/incidents/:id", load: () => import("./pages/incidents.js") },
  { path: "/approvals", load: () => import("./pages/approvals.js") },
  { path: "/approvals/:id", load: () => import("./pages/approvals.js") },
  { path: "/audit", load: () => import("./pages/audit.js") },
  { path: "/tokens", load: () => import("./pages/tokens.js") },
  { path: "/settings", load: () => import("./pages/settings.js") },
];

/** @type {Entry[]} */
export const MENU = [
  { path: "/", name: "Overview", icon: "overview" },
  { path: "/groups", name: "Groups", icon: "groups" },
  { path: "/letters", name: "Letters", icon: "letters" },
  { path: "/replays", name: "Replays", icon: "replays" },
  { path: "/sources", name: "Sources", icon: "sources" },
  { path: "/incidents", name: "Incidents", icon: "incidents" },
  { path: "/approvals", name: "Approvals", icon: "approvals", role: "operator" },
  { path: "/audit", name: "Audit", icon: "audit", role: "admin" },
  { path: "/tokens", name: "Tokens", icon: "tokens", role: "admin" },
  { path: "/settings", name: "Settings", icon: "settings", role: "admin" },
];
