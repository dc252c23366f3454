//! Sites in Rust: checks that are forced, boundaries that move, statements that are left out.
//!
//! An edit calls a function of `chosen`, which decides at run time. These have no sites: tests,
//! `const`, types, patterns, the insides of macros, planted breaches, and output for people
//! (`Debug`, `Display`, metrics, traces). This file must not judge whether an edit compiles: the
//! compiler does.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::Context as _;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt, UnOp};

use crate::site::{Edit, Found, Kind, Site, around};

/// Methods whose closure returns a boolean.
const PREDICATES: [&str; 14] = [
    "all",
    "any",
    "filter",
    "find",
    "is_err_and",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "partition",
    "position",
    "retain",
    "rposition",
    "skip_while",
    "take_while",
];
/// Methods, beside `is_…`, that return a boolean.
const QUESTIONS: [&str; 6] = ["all", "any", "contains", "contains_key", "ends_with", "starts_with"];
/// Parts of paths: a call through one of them writes only for people.
const TOLD: [&str; 3] = ["metrics", "tracing", "labels"];

/// Values to which a condition is forced.
#[derive(Clone, Copy)]
struct Ways {
    yes: bool,
    no: bool,
}

const BOTH: Ways = Ways { yes: true, no: true };
const YES: Ways = Ways { yes: true, no: false };
const NO: Ways = Ways { yes: false, no: true };

/// The sites of a file, numbered from `first`.
///
/// # Errors
/// If the file cannot be parsed as Rust.
pub fn sites(file: &str, source: &str, first: u32) -> anyhow::Result<Vec<Site>> {
    let parsed = syn::parse_file(source).with_context(|| format!("{file} cannot be read as Rust"))?;
    let mut finder = Finder { found: Found::new(file, source, first), seen: BTreeSet::new(), is_bool: false };
    finder.visit_file(&parsed);
    Ok(finder.found.sites)
}

struct Finder<'a> {
    found: Found<'a>,
    /// Byte ranges of conditions that need no further site.
    seen: BTreeSet<(usize, usize)>,
    /// True if the enclosing function returns a boolean.
    is_bool: bool,
}

fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

fn is_logic(op: &BinOp) -> bool {
    matches!(op, BinOp::And(_) | BinOp::Or(_))
}

fn is_comparison(op: &BinOp) -> bool {
    matches!(op, BinOp::Eq(_) | BinOp::Ne(_)) || boundary(op).is_some()
}

/// The function of `chosen` for a comparison with a boundary, and the mutant's operator.
fn boundary(op: &BinOp) -> Option<(&'static str, &'static str)> {
    match op {
        BinOp::Lt(_) => Some(("less", "<=")),
        BinOp::Le(_) => Some(("at_most", "<")),
        BinOp::Gt(_) => Some(("more", ">=")),
        BinOp::Ge(_) => Some(("at_least", ">")),
        _ => None,
    }
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// True if the expression asks for a planted breach.
fn is_plant(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => matches!(&*call.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|last| last.ident == "removed")),
        Expr::Unary(unary) => is_plant(&unary.expr),
        Expr::Paren(paren) => is_plant(&paren.expr),
        _ => false,
    }
}

/// True if the expression, as a statement, has an effect beyond output for people.
fn has_effect(expr: &Expr) -> bool {
    let told = |path: &syn::Path| path.segments.iter().any(|part| TOLD.iter().any(|word| part.ident == word));
    match expr {
        Expr::Assign(_) | Expr::MethodCall(_) | Expr::Try(_) => true,
        Expr::Await(waiting) => has_effect(&waiting.base),
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if told(&path.path)),
        Expr::Binary(binary) => !is_logic(&binary.op) && !is_comparison(&binary.op),
        _ => false,
    }
}

/// True for `for` loops and `if let` without `else`. They are left out as a whole.
fn is_skippable(expr: &Expr) -> bool {
    match expr {
        Expr::ForLoop(_) => true,
        Expr::If(check) => check.else_branch.is_none() && has_let(&check.cond),
        _ => false,
    }
}

impl Finder<'_> {
    fn force(&mut self, expr: &Expr, ways: Ways) {
        let at = range(expr);
        let literal = match expr {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Bool(truth) => Some(truth.value),
                _ => None,
            },
            _ => None,
        };
        if ways.yes && literal != Some(true) {
            self.found.add(&at, "true", |n| around(&at, &format!("(crate::mutant::is({n}) || ("), "))"));
        }
        if ways.no && literal != Some(false) {
            self.found.add(&at, "false", |n| around(&at, &format!("(!crate::mutant::is({n}) && ("), "))"));
        }
    }

    /// Forces a condition as a whole, and each operand to the value with which it decides nothing.
    /// A condition with `let` cannot be forced as a whole.
    fn condition(&mut self, expr: &Expr, ways: Ways) {
        let at = range(expr);
        if !self.seen.insert((at.start, at.end)) || is_plant(expr) {
            return;
        }
        match expr {
            Expr::Let(_) => {}
            Expr::Paren(paren) => self.condition(&paren.expr, ways),
            Expr::Binary(binary) if is_logic(&binary.op) => {
                if !has_let(expr) {
                    self.force(expr, ways);
                }
                self.operands(expr);
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                self.force(expr, ways);
                self.unforced(&unary.expr);
            }
            _ => self.force(expr, ways),
        }
    }

    /// Visits the inside of a negation that is forced already: only its operands get sites.
    fn unforced(&mut self, expr: &Expr) {
        let at = range(expr);
        self.seen.insert((at.start, at.end));
        match expr {
            Expr::Paren(paren) => self.unforced(&paren.expr),
            Expr::Binary(binary) if is_logic(&binary.op) => self.operands(expr),
            _ => {}
        }
    }

    fn operands(&mut self, expr: &Expr) {
        let Expr::Binary(binary) = expr else { return };
        let ways = if matches!(binary.op, BinOp::And(_)) { YES } else { NO };
        for operand in [&*binary.left, &*binary.right] {
            match operand {
                // a && b && c is (a && b) && c.
                Expr::Binary(inner)
                    if std::mem::discriminant(&inner.op) == std::mem::discriminant(&binary.op) =>
                {
                    let at = range(operand);
                    self.seen.insert((at.start, at.end));
                    self.operands(operand);
                }
                _ => self.condition(operand, ways),
            }
        }
    }

    /// Forces the value of a boolean block or expression, in each branch and arm.
    fn outcome(&mut self, expr: &Expr) {
        match expr {
            Expr::If(check) => {
                self.outcome_of(&check.then_branch);
                if let Some((_, otherwise)) = &check.else_branch {
                    self.outcome(otherwise);
                }
            }
            Expr::Match(choice) => choice.arms.iter().for_each(|arm| self.outcome(&arm.body)),
            Expr::Block(block) => self.outcome_of(&block.block),
            Expr::Return(_) | Expr::Macro(_) if !is_question(expr) => {}
            _ => self.condition(expr, BOTH),
        }
    }

    fn outcome_of(&mut self, block: &syn::Block) {
        if let Some(Stmt::Expr(expr, None)) = block.stmts.last() {
            self.outcome(expr);
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        let output = &signature.output;
        let is_bool = matches!(output, syn::ReturnType::Type(_, kind)
            if matches!(&**kind, syn::Type::Path(path) if path.path.is_ident("bool")));
        if is_bool {
            self.outcome_of(block);
        }
        if let (syn::ReturnType::Default, Some(Stmt::Expr(last, None))) = (output, block.stmts.last())
            && has_effect(last)
        {
            self.leave_out(range(last));
        }
        let around = std::mem::replace(&mut self.is_bool, is_bool);
        visit::visit_block(self, block);
        self.is_bool = around;
    }

    fn leave_out(&mut self, at: Range<usize>) {
        self.found.add(&at, "left out", |n| around(&at, &format!("if !crate::mutant::is({n}) {{ "), " }"));
    }

    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        if PREDICATES.contains(&name.as_str())
            && let Some(body) = closure(call.args.first())
        {
            self.outcome(body);
        }
        if name == "map_or"
            && matches!(&call.args[0], Expr::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)))
            && let Some(body) = closure(call.args.get(1))
        {
            self.outcome(body);
        }
        if name == "then" || name == "then_some" {
            self.condition(&call.receiver, BOTH);
        }
        let swapped = match (name.as_str(), call.args.len()) {
            ("max", 1) => ("max", "min", ", "),
            ("min", 1) => ("min", "max", ", "),
            ("max", 0) => ("largest", "min", ""),
            ("min", 0) => ("smallest", "max", ""),
            _ => return,
        };
        let (function, other, comma) = swapped;
        let at = range(call);
        let middle = range(&call.receiver).end..call.paren_token.span.open().byte_range().end;
        self.found.add(&at, other, |n| {
            vec![
                open(at.start, format!("crate::mutant::{function}({n}, ")),
                Edit { at: middle, kind: Kind::Replace, text: comma.to_owned() },
            ]
        });
    }
}

/// The body of a closure.
fn closure(argument: Option<&Expr>) -> Option<&Expr> {
    match argument {
        Some(Expr::Closure(closure)) => Some(&closure.body),
        _ => None,
    }
}

fn open(at: usize, text: String) -> Edit {
    Edit { at: at..at, kind: Kind::Open, text }
}

/// True if the form of the expression shows that its value is a boolean.
fn is_question(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(binary) => is_logic(&binary.op) || is_comparison(&binary.op),
        Expr::Macro(call) => call.mac.path.is_ident("matches"),
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            name.starts_with("is_") || QUESTIONS.contains(&name.as_str())
        }
        _ => false,
    }
}

/// True if the item is for tests: `#[test]`, or a `cfg` that names `test`.
fn is_left_alone(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let list = || attr.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        attr.path().is_ident("test")
            || attr.path().is_ident("cfg")
                && list().split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_left_alone(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let told = |(_, path, _): &(_, syn::Path, _)| {
            path.segments.last().is_some_and(|last| last.ident == "Debug" || last.ident == "Display")
        };
        if !is_left_alone(&item.attrs) && !item.trait_.as_ref().is_some_and(told) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_left_alone(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_left_alone(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expr, end) = statement
            && (end.is_some() && has_effect(expr) || is_skippable(expr))
        {
            self.leave_out(range(statement));
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, BOTH);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if is_question(expr) {
            self.condition(expr, BOTH);
        }
        match expr {
            Expr::If(check) => self.condition(&check.cond, BOTH),
            Expr::While(turns) => self.condition(&turns.cond, NO),
            Expr::MethodCall(call) => self.method(call),
            Expr::Return(back) if self.is_bool => {
                if let Some(value) = &back.expr {
                    self.outcome(value);
                }
            }
            Expr::Binary(binary) => {
                if let Some((function, other)) = boundary(&binary.op) {
                    let at = range(expr);
                    let middle = range(&binary.left).end..range(&binary.right).start;
                    self.found.add(&at, &format!("with {other}"), |n| {
                        let mut edits = around(&at, &format!("crate::mutant::{function}({n}, &("), "))");
                        edits.push(Edit { at: middle, kind: Kind::Replace, text: "), &(".to_owned() });
                        edits
                    });
                }
            }
            Expr::Const(_) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Closure(closure) => {
                let around = std::mem::replace(&mut self.is_bool, false);
                self.visit_expr(&closure.body);
                self.is_bool = around;
                return;
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::edited;

    /// Changes of all sites in this source.
    fn changes(source: &str) -> Vec<String> {
        sites("src/a.rs", source, 1).unwrap().into_iter().map(|site| site.change).collect()
    }

    /// The source with the edits of the only site that makes this change.
    fn with(source: &str, change: &str) -> String {
        let all = sites("src/a.rs", source, 1).unwrap();
        let those: Vec<&Site> = all.iter().filter(|site| site.change == change).collect();
        assert_eq!(those.len(), 1, "{change} in {all:#?}");
        edited(source, &those).replace(&those[0].number.to_string(), "N").replace("crate::mutant::", "")
    }

    #[test]
    fn a_condition_is_forced_both_ways() {
        let source = "fn f() { if ready { go } }";
        assert_eq!(changes(source), ["ready -> true", "ready -> false"]);
        assert_eq!(with(source, "ready -> true"), "fn f() { if (is(N) || (ready)) { go } }");
        assert_eq!(with(source, "ready -> false"), "fn f() { if (!is(N) && (ready)) { go } }");
    }

    #[test]
    fn an_operand_is_forced_to_where_it_decides_nothing() {
        let changes = changes("fn f() { if !(a && b && c) || d {} }");
        let whole = ["!(a && b && c) || d -> true", "!(a && b && c) || d -> false"];
        let operands = ["!(a && b && c) -> false", "a -> true", "b -> true", "c -> true", "d -> false"];
        assert_eq!(changes, [&whole[..], &operands[..]].concat());
    }

    #[test]
    fn a_boundary_moves() {
        for (op, function, other) in
            [("<", "less", "<="), ("<=", "at_most", "<"), (">", "more", ">="), (">=", "at_least", ">")]
        {
            let source = format!("fn f() {{ let x = 1{op}y; }}");
            let moved = with(&source, &format!("1{op}y -> with {other}"));
            assert_eq!(moved, format!("fn f() {{ let x = {function}(N, &(1), &(y)); }}"));
        }
        assert_eq!(changes("fn f() { g(a == b) }")[1..], ["a == b -> true", "a == b -> false"]);
    }

    #[test]
    fn a_guard_of_an_arm_and_a_while_are_conditions() {
        assert_eq!(changes("fn f() { match x { Y if z => 1, _ => 2 } }"), ["z -> true", "z -> false"]);
        assert_eq!(changes("fn f() { while z {} }"), ["z -> false"]);
        assert_eq!(changes("fn f() { if let Some(a) = b && c {} else {} }"), ["c -> true"]);
    }

    #[test]
    fn what_a_function_or_a_closure_says_is_forced() {
        assert_eq!(changes("fn f() -> bool { x }"), ["x -> true", "x -> false"]);
        assert_eq!(changes("fn f() -> bool { return true }"), ["true -> false"]);
        assert_eq!(changes("fn f() -> u8 { return x }"), [""; 0]);
        let in_arms = changes("fn f() -> bool { match a { B => x, _ => { y } } }");
        assert_eq!(in_arms, ["x -> true", "x -> false", "y -> true", "y -> false"]);
        assert_eq!(changes("fn f() -> u8 { a.filter(|b| b.c).d() }"), ["b.c -> true", "b.c -> false"]);
        assert_eq!(changes("fn f() -> u8 { a.map_or(false, |b| c) }"), ["c -> true", "c -> false"]);
        assert_eq!(changes("fn f() -> u8 { (a).then(b) }"), ["a -> true", "a -> false"]);
        let asked = ["matches!(a, B) -> true", "matches!(a, B) -> false"];
        assert_eq!(changes("fn f() -> u8 { g(matches!(a, B)) }"), asked);
    }

    #[test]
    fn a_statement_is_left_out() {
        for statement in ["check(a)?;", "self.close();", "a.b = c;", "a += c;", "go().await;"] {
            let source = format!("fn f() -> u8 {{ {statement} b }}");
            let without = with(&source, &format!("{statement} -> left out"));
            assert_eq!(without, format!("fn f() -> u8 {{ if !is(N) {{ {statement} }} b }}"));
        }
        assert_eq!(changes("fn f() { self.close() }"), ["self.close() -> left out"]);
        assert_eq!(changes("fn f() { for a in b {} }"), ["for a in b {} -> left out"]);
        let early = "if let Some(a) = b { return; }";
        assert_eq!(changes(&format!("fn f() {{ {early} g }}")), [format!("{early} -> left out")]);
    }

    #[test]
    fn the_larger_becomes_the_smaller() {
        let source = "fn f() -> u8 { a.b\n.max(c) }";
        assert_eq!(with(source, "a.b .max(c) -> min"), "fn f() -> u8 { max(N, a.b, \nc) }");
        assert_eq!(with("fn f() -> u8 { a.min() }", "a.min() -> max"), "fn f() -> u8 { smallest(N, a) }");
    }

    #[test]
    fn nested_sites_open_and_close_in_order() {
        let source = "fn f() { if a < b {} }";
        let all = sites("src/a.rs", source, 1).unwrap();
        let text = edited(source, &all.iter().collect::<Vec<_>>()).replace("crate::mutant::", "");
        assert_eq!(text, "fn f() { if (is(1) || ((!is(2) && (less(3, &(a), &(b)))))) {} }");
    }

    #[test]
    fn tests_constants_and_what_people_read_are_left_alone() {
        let nothing: [&str; 0] = [];
        for source in [
            "#[cfg(test)] mod tests { fn f() { if a {} } }",
            "#[cfg(any(test, feature = \"plant\"))] fn f() { if a {} }",
            "const fn f() { if a {} }",
            "const A: bool = 1 < 2;",
            "impl fmt::Display for A { fn f() { if a {} } }",
            "fn f() -> u8 { metrics::count(); tracing::info!(a = b < c); g }",
            "fn f() -> bool { removed(Plant::A) }",
        ] {
            assert_eq!(changes(source), nothing, "{source}");
        }
    }
}
