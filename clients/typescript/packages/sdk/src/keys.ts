import { createHash, randomBytes } from 'node:crypto';

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/** Crockford's base32 in lower case, five bits a character, the first bits first. */
export function base32(bytes: Uint8Array): string {
  let text = '', bits = 0, held = 0;
  for (const byte of bytes) {
    held = (held << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(held >> bits) & 31];
    }
    held &= (1 << bits) - 1;
  }
  return bits > 0 ? text + ALPHABET[(held << (5 - bits)) & 31] : text;
}

/** An id as Semel writes it: a prefix and the 128 bits of a UUID in 26 characters. */
export function idOf(prefix: 'run' | 'node' | 'ws', uuid: Uint8Array): string {
  let number = 0n, text = '';
  for (const byte of uuid) number = (number << 8n) | BigInt(byte);
  for (let i = 0; i < 26; i++, number >>= 5n) text = ALPHABET[Number(number & 31n)] + text;
  return `${prefix}_${text}`;
}

/** The bytes of a fresh UUIDv7. */
export function uuid7(now = Date.now()): Uint8Array {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  return bytes;
}

/** A UUID as text. */
export function uuidText(bytes: Uint8Array): string {
  const hex = Buffer.from(bytes).toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join('-');
}

/** What an effect is known by. */
export interface Effect {
  workspace: string;
  lineage: string;
  path: string;
  tick: number;
  /** Tells several effects of one step apart; empty for the first. */
  label: string;
}

function digest(effect: Effect): Buffer {
  const hash = createHash('sha256');
  const length = Buffer.alloc(8);
  for (const part of ['semel/effect/v1', effect.workspace, effect.lineage, effect.path, String(effect.tick), effect.label]) {
    const bytes = Buffer.from(part, 'utf8');
    length.writeBigUInt64BE(BigInt(bytes.length));
    hash.update(length).update(bytes);
  }
  return hash.digest();
}

/** The effect key: the same on every attempt, over crashes, restarts and forks. */
export function effectKey(effect: Effect): string {
  return `e1${base32(digest(effect).subarray(0, 20))}`;
}

/** The effect key as a UUID, for providers that want one. */
export function effectUuid(effect: Effect): string {
  const bytes = digest(effect).subarray(0, 16);
  bytes[6] = 0x80 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  return uuidText(bytes);
}

/** Maximum length of a part of a path, in characters. */
const PART = 200;

function isPlain(text: string, reserved: RegExp): boolean {
  // eslint-disable-next-line no-control-regex
  return !reserved.test(text) && !/[\u0000-\u001f\u007f-\u009f]/.test(text) && text !== '' && [...text].length <= PART;
}

/** Whether a text can be a part of a path. */
export function isName(text: string): boolean {
  return isPlain(text, /[/[\]#]/);
}

/** A text as the key of a path: as it is if that is possible, else by its hash. */
export function pathKey(text: string): string {
  if (isPlain(text, /[/[\]#~]/)) return text;
  return `~${base32(createHash('sha256').update(text, 'utf8').digest().subarray(0, 20))}`;
}
