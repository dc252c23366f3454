//! Forms of the acts on one key or one accepted request.
//!
//! [`super::key`] and [`super::jobs`] say which acts there are, [`super::acts`] takes the forms.
//! This file must not offer an act to a visitor who may not act.

use maud::{Markup, html};

use super::frame::section;
use crate::gateway::credentials::operators::Visitor;

/// The thing that an act is for.
pub(super) struct Place<'a> {
    /// The region that has to act.
    pub(super) region: &'a str,
    pub(super) tenant: &'a str,
    pub(super) key: &'a str,
    /// The thing as the operator saw it.
    pub(super) seen: &'a str,
}

/// An act's name, its title, what it means, and its own fields.
pub(super) type Offer = (&'static str, &'static str, &'static str, Markup);

/// Makes the forms of the acts, if the visitor may act.
pub(super) fn forms(
    visitor: &Visitor,
    me: &str,
    place: &Place<'_>,
    before: &Markup,
    offers: &[Offer],
) -> Markup {
    let there = place.region != me;
    let body = match visitor.may_act() {
        Err(why) => html! { p { (why) } },
        Ok(()) if there && *visitor == Visitor::Local => html! {
            p { b { (place.region) } " has to act, and knows its operators by their tokens: open the console of a gateway there." }
        },
        Ok(()) => html! {
            (before)
            @if there { p { b { (place.region) } " has to act: you will be asked for your token, by which it knows you." } }
            @for (verb, title, meaning, fields) in offers {
                details id=(verb) {
                    summary { (title) }
                    form.act method="post" action={ "/console/" (verb) } {
                        @for (name, value) in [("region", place.region), ("tenant", place.tenant), ("key", place.key), ("seen", place.seen)] {
                            input type="hidden" name=(name) value=(value);
                        }
                        p.soft { (meaning) }
                        (fields)
                        (make_reason_fields(visitor, verb))
                        button type="submit" { "Look it over…" }
                    }
                }
            }
        },
    };
    section("decide", "Decide", None, &body)
}

/// Makes the fields for the operator's name and reason.
fn make_reason_fields(visitor: &Visitor, act: &str) -> Markup {
    html! {
        label for={ (act) "-reason" } { "Why " span.soft { "journalled with the act" } }
        textarea id={ (act) "-reason" } name="reason" rows="2" required maxlength="1000" placeholder="the provider shows po_17, OPS-311" {}
        @if let Some(name) = visitor.name() {
            p { "Who " b { (name) } }
        } @else {
            label for={ (act) "-actor" } { "Who " span.soft { "your name, journalled too" } }
            input id={ (act) "-actor" } name="actor" required maxlength="200" autocomplete="username" autocapitalize="none";
        }
    }
}
