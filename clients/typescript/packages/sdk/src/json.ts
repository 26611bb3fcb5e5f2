import { fatal } from './errors.js';

/** JSON text of a value. Numbers that JavaScript does not hold exactly, and values that JSON does not have, are refused. */
export function encode(value: unknown): string {
  const text = JSON.stringify(value === undefined ? null : value, refuseBigInt);
  if (text === undefined) throw fatal(`a ${typeof value} is not JSON: return a plain value`);
  if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(text)) throw fatal('the text ends within a character (half of a surrogate pair): send whole ones');
  // Only these texts can come of a number that is not kept: the exact check visits every member, so it is not made always.
  if (/\d{16}|e\+|null/.test(text)) check(value, new Set());
  return text;
}

/** JSON text of a value that the server has sent. Its large integers have lost digits already. */
export function encodeGiven(value: unknown): string {
  return JSON.stringify(value === undefined ? null : value);
}

/** The value of a JSON text. Integers above 2^53 lose digits: send amounts of that size as texts. */
export function decode<T>(text: string): T {
  return JSON.parse(text) as T;
}

function refuseBigInt(this: unknown, _: string, value: unknown): unknown {
  if (typeof value === 'bigint') throw fatal('a bigint is not JSON: send it as a text');
  return value;
}

function check(value: unknown, above: Set<object>): void {
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw fatal(`${value} is not JSON`);
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      throw fatal(`${value} is above 2^53, where JavaScript loses digits: send it as a text`);
    }
  } else if (typeof value === 'object' && value !== null && !above.has(value)) {
    if ('toJSON' in value) return;
    above.add(value);
    for (const member of Object.values(value)) check(member, above);
    above.delete(value);
  }
}
