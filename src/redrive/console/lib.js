// The libraries under one name: Preact with hooks, signals, and htm for what elements look like.

import { visible } from "./hidden.js";
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, Fragment, render } from "./vendor/preact.js";
export { useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from "./vendor/signals.js";

/** A value in it becomes text or a property, never markup: an error message is somebody else's words. Nothing hides in it. */
export const html = (/** @type {TemplateStringsArray} */ strings, /** @type {any[]} */ ...values) => shown(made(strings, ...values));

const made = htm.bind(/** @type {any} */ (element));

const SPOKEN = ["title", "aria-label", "placeholder", "data-label"];

function element(/** @type {any} */ type, /** @type {Record<string, any> | null} */ props, /** @type {any[]} */ ...children) {
  if (props && typeof type === "string") for (const name of SPOKEN) if (typeof props[name] === "string") props[name] = visible(props[name]);
  return h(type, props, ...children.map(shown));
}

const shown = (/** @type {any} */ child) => (typeof child === "string" ? visible(child) : Array.isArray(child) ? child.map(shown) : child);
