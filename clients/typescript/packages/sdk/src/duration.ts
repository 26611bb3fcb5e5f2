/** A length of time: milliseconds, or a text such as `500ms`, `10s`, `1h30m`, `7d`, `2w`. */
export type Duration = number | string;

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** A length of time in milliseconds. */
export function millis(duration: Duration): number {
  if (typeof duration === 'number') {
    if (!Number.isFinite(duration) || duration < 0) throw new RangeError(`${duration} is no length of time`);
    return Math.round(duration);
  }
  const parts = [...duration.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdw])/g)];
  if (parts.length === 0 || parts.map(part => part[0]).join('') !== duration.trim()) {
    throw new RangeError(`"${duration}" is no length of time: write one such as 500ms, 10s, 1h30m or 7d`);
  }
  return Math.round(parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit!]!, 0));
}
