/** What travels between a worker and its server. Times are milliseconds since 1970, of the store's clock. */

import type { FailureKind } from './errors.js';

/** Version of the worker protocol that this SDK speaks. */
export const PROTOCOL = '1';

export type Class = 'keyed' | 'at-most-once' | 'reconcile' | 'tx';

export interface FailureView {
  kind: FailureKind;
  message: string;
  code?: string;
  data?: unknown;
}

export type Outcome =
  | { completed: unknown }
  | { failed: FailureView }
  | { cancelled: string }
  | 'timedOut'
  | { purged: string };

/** What stands at a visit. */
export type Record_ =
  | { started: { attempt: number; class: Class } }
  | { retrying: { attempt: number; at: number; error: FailureView } }
  | { completed: unknown }
  | { failed: FailureView }
  | 'skipped'
  | { inDoubt: { attempt: number; class: Class } }
  | { cleared: { attempt: number } }
  | { timer: { at: number; fired: boolean } }
  | { hook: HookRecord }
  | { child: { run?: string; outcome?: Outcome } }
  | { value: unknown };

export interface HookRecord {
  token: string;
  state: 'opening' | 'open' | 'conflicted' | 'closed' | 'released';
  received?: unknown[];
  owner?: string;
}

export type Message =
  | { delivery: { token: string; payload: unknown } }
  | { childEnded: { child: string; run: string; outcome: Outcome } }
  | { cancelRequested: { reason: string; by: string } }
  | { parentCancelled: { parent: string } }
  | { onceSettled: { scope: string; label: string } }
  | { keyReleased: { by: string } };

export interface Arrival {
  number: number;
  message: Message;
}

/** A claimed run with its ledger folded. */
export interface FoldedRun {
  run: string;
  workspace: string;
  workflow: string;
  workflowVersion: string;
  key: string;
  scope: string;
  lineage: string;
  version: number;
  fence: number;
  claims: number;
  created: number;
  deadline?: number;
  cancelling?: { reason: string; by: string };
  input: unknown;
  records: { [visit: string]: Record_ };
  once?: { label: string; scope?: string; value: unknown }[];
  carried?: string[];
  /** Number of the latest message in the inbox, consumed or not. */
  arrivals?: number;
  inbox: Arrival[];
  inboxFrom?: number;
}

export interface Claims {
  runs: FoldedRun[];
  leftOut?: string[];
  repeated?: boolean;
  nextDue: number | null;
  now: number;
}

/** An entry that the store completes, as JSON text, and how many of the entries precede it. */
export interface PlacedDraft {
  after: number;
  draft: string;
}

/** A commit; its entries are JSON texts already. */
export interface Commit {
  run: string;
  expected: number;
  seen: number;
  entries: string[];
  drafts: PlacedDraft[];
}

export type Settled =
  | { hookOpened: { hook: string; token: string } }
  | { hookConflicted: { hook: string; token: string; owner: string } }
  | { childStarted: { child: string; run: string; attached: boolean } };

export interface Saved {
  version: number;
  /** Number of the latest message in the run's inbox. */
  arrivals?: number;
  settled?: Settled[];
}

export type CommitAnswer =
  | { ok: Saved }
  | { error: 'unavailable' | 'unknown' | { [kind: string]: unknown } };

export interface RunNews {
  run: string;
  arrived?: number;
  taken?: boolean;
}
