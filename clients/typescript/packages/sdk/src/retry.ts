import { millis, type Duration } from './duration.js';
import type { Fail } from './errors.js';

/** How a step is tried again. What is absent has the default. */
export interface Retry {
  /** Maximum number of attempts, the first included; 3 by default. */
  maxAttempts?: number;
  /** Pause after the first attempt; 1s by default. */
  initial?: Duration;
  /** Factor by which each pause is longer than the one before; 2 by default. */
  factor?: number;
  /** Maximum length of a pause; 1m by default. */
  maxDelay?: Duration;
  /** Share of a pause, from 0 to 1, up to which it is shortened at random; 0.5 by default. */
  jitter?: number;
}

/** The pause before the next attempt in milliseconds, `fail` or `doubt`. `random` is from 0 up to 1. */
export function next(retry: Retry, attempt: number, kind: Fail['kind'], random: number): number | 'fail' | 'doubt' {
  if (kind === 'fatal' || kind === 'cancelled') return 'fail';
  if (kind === 'uncertain') return 'doubt';
  if (attempt >= (retry.maxAttempts ?? 3)) return 'fail';
  const most = millis(retry.maxDelay ?? '1m');
  const full = Math.min(millis(retry.initial ?? '1s') * (retry.factor ?? 2) ** (attempt - 1), most);
  const pause = full * (1 - (retry.jitter ?? 0.5) * random);
  // To the nearest nanosecond first: 933.9999999 is 934.
  return Math.floor(Math.round(pause * 1e6) / 1e6);
}

/** A retry policy as it travels. */
export function wireOf(retry: Retry): object {
  return {
    maxAttempts: retry.maxAttempts ?? 3,
    initialMs: millis(retry.initial ?? '1s'),
    factor: retry.factor ?? 2,
    maxDelayMs: millis(retry.maxDelay ?? '1m'),
    jitter: retry.jitter ?? 0.5,
  };
}
