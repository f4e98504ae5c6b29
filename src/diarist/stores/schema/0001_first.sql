-- Schema 1 of a diary. Each statement's text is kept in the file, so what explains a table stands before it.

-- What is true of the diary as a whole: owner, secret, time zone, and running totals.
CREATE TABLE diary (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- One fact a row. `seq` is the history line that first wrote it, so it is never given twice. `order_at` is
-- what "newest" goes by: when it happened, else when it was written, and then never before the note written before it.
-- `said` is the history line that last wrote it. `words` are the terms it is found by.
CREATE TABLE notes (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, text TEXT NOT NULL,
  created_at TEXT NOT NULL, happened_at TEXT, expires_at TEXT, order_at TEXT NOT NULL, said INTEGER NOT NULL,
  source TEXT, origin TEXT NOT NULL, tags TEXT NOT NULL, flagged TEXT, session TEXT, times INTEGER NOT NULL,
  replaced_by TEXT, replaced_at TEXT, replaces TEXT NOT NULL, keys TEXT NOT NULL, pending INTEGER NOT NULL,
  words TEXT NOT NULL, fingerprint BLOB NOT NULL);

-- The same text again, and the same request again, are found here. `fingerprint` is that of the text as it was asked
-- to be kept, gone once the note was edited.
CREATE INDEX notes_same ON notes (fingerprint);
CREATE TABLE keys (key TEXT PRIMARY KEY, seq INTEGER NOT NULL, fingerprint BLOB) WITHOUT ROWID;

-- Which notes hold a word. A row covers 4,096 seqs (`block` = seq / 4096); `notes` has two bytes for each of `count`
-- notes: seq modulo 4096 in the low twelve bits, how often (up to 15) above them. The newest few hundred notes are not
-- filed here yet: see "filed" in `diary`.
CREATE TABLE words (word TEXT, block INTEGER, count INTEGER NOT NULL, notes BLOB NOT NULL, PRIMARY KEY (word, block)) WITHOUT ROWID;

-- The meaning of a note, one row a window of its text: `place` is seq * 4096 + window, `vector` little-endian float16.
CREATE TABLE vectors (place INTEGER PRIMARY KEY, embedder TEXT NOT NULL, vector BLOB NOT NULL);

-- What was done, in order, without what was said. `note` is the id of a note that was forgotten: a backup made before
-- must not bring it back.
CREATE TABLE history (seq INTEGER PRIMARY KEY, at TEXT NOT NULL, what TEXT NOT NULL, entry INTEGER NOT NULL, note TEXT);

-- Conversations under an id, and their messages as they were sent. Their seqs begin at 2^40, so that the word and
-- vector tables serve both.
CREATE TABLE sessions (id TEXT PRIMARY KEY, owner TEXT NOT NULL, key TEXT NOT NULL, created_at TEXT NOT NULL, ended_at TEXT, expires_at TEXT) WITHOUT ROWID;
CREATE TABLE messages (
  seq INTEGER PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL, number INTEGER NOT NULL, created_at TEXT NOT NULL,
  speaker TEXT, text TEXT NOT NULL, message TEXT NOT NULL, pending INTEGER NOT NULL, words TEXT NOT NULL, UNIQUE (session, number));
