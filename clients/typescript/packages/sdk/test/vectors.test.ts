import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { effectKey, effectUuid, type Effect } from '../src/keys.js';
import { next } from '../src/retry.js';

interface Vector { why: string; given: Effect; expected: { key: string; uuid: string } }

test('effect keys are those of the golden vectors', () => {
  const vectors = JSON.parse(readFileSync(new URL('../../../../../../vectors/effect_keys.json', import.meta.url), 'utf8')) as Vector[];
  assert.ok(vectors.length > 5);
  for (const { why, given, expected } of vectors) {
    assert.deepEqual({ key: effectKey(given), uuid: effectUuid(given) }, expected, why);
  }
});

test('pauses grow up to a limit, and are shortened by jitter', () => {
  const pauses = [1, 2, 3, 7].map(attempt => next({ maxAttempts: 99 }, attempt, 'retryable', 0));
  assert.deepEqual(pauses, [1000, 2000, 4000, 60_000]);
  assert.equal(next({ maxAttempts: 99 }, 1, 'retryable', 1), 500);
  assert.deepEqual(['fatal', 'cancelled', 'uncertain'].map(kind => next({}, 1, kind as 'fatal', 0)), ['fail', 'fail', 'doubt']);
  assert.equal(next({}, 3, 'retryable', 0), 'fail');
});
