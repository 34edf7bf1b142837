PRAGMA application_id=1701667441;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE consumer_group (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  queue   INTEGER NOT NULL,
  name    TEXT NOT NULL,
  floor   INTEGER NOT NULL,    -- messages up to this seq are settled for the group
  settled INTEGER NOT NULL DEFAULT 0,    -- rows in msg that the group has settled
  UNIQUE (queue, name)
);
INSERT INTO "consumer_group" VALUES(1,1,'default',1,0);
INSERT INTO "consumer_group" VALUES(2,2,'default',17,2);
INSERT INTO "consumer_group" VALUES(3,2,'audit',15,0);
CREATE TABLE dead (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of dying
  seq          INTEGER NOT NULL,
  grp          INTEGER NOT NULL,
  queue        INTEGER NOT NULL,
  died         INTEGER NOT NULL,           -- ms
  reason       TEXT NOT NULL,              -- code, see embedq.lifecycle.Reason
  detail       TEXT NOT NULL,
  moved_by     TEXT NOT NULL,
  attempts     BLOB,                       -- MessagePack list of AttemptRecord
  put_at       INTEGER NOT NULL,
  kind         INTEGER NOT NULL,
  crc          INTEGER NOT NULL,
  priority     INTEGER NOT NULL,
  okey         TEXT,
  max_attempts INTEGER,
  headers      BLOB,
  body         BLOB NOT NULL,
  UNIQUE (seq, grp)
);
INSERT INTO "dead" VALUES(1,1,1,1,1700000000000,'rejected','why','',X'919601CF0000018BCFE56800CF0000018BCFE56800AA686F73742D323438363701C0',1700000000000,0,492491812,0,NULL,NULL,NULL,X'706C61696E2030');
CREATE TABLE dedup (
  queue   INTEGER NOT NULL,
  key     TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  expires INTEGER NOT NULL,                -- ms
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;
INSERT INTO "dedup" VALUES(1,'d',13,1700000600000);
CREATE TABLE delivery (
  seq     INTEGER NOT NULL,
  grp     INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  epoch   INTEGER NOT NULL,
  counter INTEGER NOT NULL,                -- fencing token within the epoch
  crashes INTEGER NOT NULL DEFAULT 0,      -- workers and hosts that died with this message
  session INTEGER,
  started INTEGER NOT NULL,                -- ms
  ended   INTEGER,                         -- ms
  outcome INTEGER,                         -- embedq.lifecycle.Outcome; from 10 on final
  due     INTEGER,                         -- ms: the retry may start
  closed  INTEGER,                         -- order of closing; only where history is kept
  error   BLOB,                            -- MessagePack, see embedq.message.ErrorInfo
  PRIMARY KEY (seq, grp, attempt)
) WITHOUT ROWID;
INSERT INTO "delivery" VALUES(2,1,1,1,5,0,1,1700000000000,1700000000000,1,1700000005000,NULL,X'93AA56616C75654572726F72A26E6FA0');
INSERT INTO "delivery" VALUES(16,2,1,1,1,0,1,1700000000000,1700000000000,10,NULL,1099511627786,NULL);
INSERT INTO "delivery" VALUES(16,3,1,1,3,0,1,1700000000000,1700000000000,1,1700000005000,1099511627789,X'93AA56616C75654572726F72A26E6FA0');
INSERT INTO "delivery" VALUES(17,2,1,1,2,0,1,1700000000000,1700000000000,10,NULL,1099511627787,NULL);
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value                        -- store key (BLOB), epoch, seq high-water mark, clean flag
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('clean',1);
INSERT INTO "meta" VALUES('epoch',1);
INSERT INTO "meta" VALUES('seq_reserved',18);
INSERT INTO "meta" VALUES('store_key',X'85CFCE4DA41520608F77CEE667B9675A');
CREATE TABLE msg (
  seq          INTEGER PRIMARY KEY,
  queue        INTEGER NOT NULL,
  put_at       INTEGER NOT NULL,           -- ms, wall clock
  kind         INTEGER NOT NULL,           -- content kind of the body
  crc          INTEGER NOT NULL,           -- CRC-32 of headers, then body
  priority     INTEGER NOT NULL DEFAULT 0,
  due          INTEGER,                    -- ms: not deliverable before
  expires      INTEGER,                    -- ms: not deliverable from then on
  okey         TEXT,                       -- ordering key
  max_attempts INTEGER,                    -- NULL: the queue's; 0: endless
  headers      BLOB,                       -- MessagePack map
  body         BLOB NOT NULL
);
INSERT INTO "msg" VALUES(2,1,1700000000000,0,1784538290,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2031');
INSERT INTO "msg" VALUES(3,1,1700000000000,0,4082414856,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2032');
INSERT INTO "msg" VALUES(4,1,1700000000000,0,2220066206,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2033');
INSERT INTO "msg" VALUES(5,1,1700000000000,0,439816253,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2034');
INSERT INTO "msg" VALUES(6,1,1700000000000,0,1831870635,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2035');
INSERT INTO "msg" VALUES(7,1,1700000000000,0,4097405201,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2036');
INSERT INTO "msg" VALUES(8,1,1700000000000,0,2201895303,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2037');
INSERT INTO "msg" VALUES(9,1,1700000000000,0,327244822,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2038');
INSERT INTO "msg" VALUES(10,1,1700000000000,0,1686531200,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E2039');
INSERT INTO "msg" VALUES(11,1,1700000000000,0,3521007717,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E203130');
INSERT INTO "msg" VALUES(12,1,1700000000000,0,2799263987,0,NULL,NULL,NULL,NULL,NULL,X'706C61696E203131');
INSERT INTO "msg" VALUES(14,1,1700000000000,0,1865031573,0,1700000001000,NULL,NULL,NULL,NULL,X'6C617465');
INSERT INTO "msg" VALUES(15,1,1700000000000,0,43536197,0,NULL,1700000100000,NULL,NULL,NULL,X'676F6E65');
INSERT INTO "msg" VALUES(16,2,1700000000000,0,2053932785,0,NULL,NULL,NULL,NULL,NULL,X'6F6E65');
INSERT INTO "msg" VALUES(17,2,1700000000000,0,298486374,0,NULL,NULL,NULL,NULL,NULL,X'74776F');
INSERT INTO "msg" VALUES(18,2,1700000000000,0,1187371253,0,NULL,NULL,NULL,NULL,NULL,X'7468726565');
CREATE TABLE queue (
  id       INTEGER PRIMARY KEY,
  name     TEXT NOT NULL UNIQUE,
  policy   TEXT NOT NULL,      -- JSON, see embedq.policy.QueuePolicy
  retained INTEGER NOT NULL,   -- 1: settled messages stay until their retention is over
  paused   INTEGER NOT NULL DEFAULT 0,
  stored   INTEGER NOT NULL DEFAULT 0,   -- rows in msg; exact after a clean close only
  dead     INTEGER NOT NULL DEFAULT 0,   -- rows in dead; likewise
  last     INTEGER                       -- highest seq ever put here; NULL: not known
);
INSERT INTO "queue" VALUES(1,'orders','{"max_attempts":5,"max_crashes":3,"retain_ms":null,"lease_ms":30000,"dedup_window_ms":600000,"max_length":null,"when_full":"block"}',0,0,13,1,15);
INSERT INTO "queue" VALUES(2,'kept','{"max_attempts":5,"max_crashes":3,"retain_ms":1000000000,"lease_ms":30000,"dedup_window_ms":600000,"max_length":null,"when_full":"block"}',1,0,3,0,18);
CREATE TABLE session (
  id      INTEGER PRIMARY KEY,
  name    TEXT NOT NULL,                   -- shown as the worker of a delivery
  epoch   INTEGER NOT NULL,
  opened  INTEGER NOT NULL,                -- ms
  token   BLOB,                            -- by which a client takes it up again
  requests BLOB                            -- MessagePack, see embedq.storage.answered
);
INSERT INTO "session" VALUES(1,'host-24867',1,1700000000000,NULL,NULL);
INSERT INTO "session" VALUES(2,'listeners',1,1700000000000,X'6C697374656E657273',NULL);
INSERT INTO "session" VALUES(3,'client-1',1,1700000000000,X'74747474747474747474747474747474',NULL);
CREATE INDEX msg_priority ON msg (queue, priority, seq) WHERE priority <> 0;
CREATE INDEX msg_due      ON msg (queue, due, seq)      WHERE due IS NOT NULL;
CREATE INDEX msg_expires  ON msg (expires)              WHERE expires IS NOT NULL;
CREATE INDEX msg_key      ON msg (queue, okey, seq)     WHERE okey IS NOT NULL;
CREATE INDEX delivery_due    ON delivery (grp, due, seq) WHERE due IS NOT NULL;
CREATE INDEX delivery_closed ON delivery (grp, closed)   WHERE closed IS NOT NULL;
CREATE INDEX dead_queue ON dead (queue, id);
CREATE INDEX dedup_expires ON dedup (expires);
CREATE UNIQUE INDEX session_token ON session (token) WHERE token IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('consumer_group',3);
INSERT INTO "sqlite_sequence" VALUES('dead',1);
COMMIT;
