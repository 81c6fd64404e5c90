// The libraries under one name: Preact with hooks, signals, and htm for what elements look like.

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, Fragment, render } from "./vendor/preact.js";
export { useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "./vendor/signals.js";

/** A value in it becomes text or a property, never markup: an error message is somebody else's words. */
export const html = htm.bind(h);
