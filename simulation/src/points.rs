//! Statements after which a gateway process may die: the statement took effect, but the process has
//! no answer yet.
//!
//! docs/simulation.md lists the sequences of statements in upkeep, and the effect of a crash there.

use onceway::protocol::named;

named! {
    "A kind of statement that a gateway makes beside requests, or that ends an attempt."
    Point
    StandIn "stand-in" "A record in the place of another region's attempt."
    Rule "rule" "An operator's act on an attempt."
    Doubt "doubt" "An attempt is in doubt."
    Settle "settle" "An answer is stored."
    Release "release" "An attempt is released."
    List "list" "Keys are put on the list of doubts, or taken off."
    Take "take" "Jobs are taken."
    Job "job" "A job is done, put off, or a dead letter."
    Reap "reap" "A batch of rows, claims that were lodged, imports or requests is reaped."
    Convert "convert" "Claims that were lodged become records."
    Void "void" "A claim that was lodged is taken back, or gets its answer."
    Import "import" "A page of another region's rows is stored."
    Remember "remember" "What is remembered of peers."
    Gate "gate" "The gate, or the boot that it approves."
    Views "views" "Chosen views."
    Acceptor "acceptor" "A promise, a grant or an accepted view."
    Journal "journal" "An entry of the journal, or a look of the audit."
}
