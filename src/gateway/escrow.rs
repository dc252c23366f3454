//! Escrow at the target: claims and answers of other regions, lodged here.
//!
//! Neighbours: [`super::authority`] hands these questions in, `ports::authority` stores. It must not lodge under a view that is not adopted
//! here, nor for a key whose target this region is not.

use std::sync::Arc;

use super::Gateway;
use crate::ports::Ports;
use crate::ports::authority::Lodging;
use crate::ports::peers::Told;
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Nonce, Token};
use crate::protocol::region::RegionName;

impl<P: Ports> Gateway<P> {
    pub(super) async fn lodged(self: &Arc<Self>, _from: &RegionName, _lodging: Lodging) -> Told {
        Told::Refused("not built yet".to_owned())
    }

    pub(super) async fn answer_lodged(
        self: &Arc<Self>,
        _from: &RegionName,
        _id: &KeyId,
        _token: Token,
        _nonce: Nonce,
        _answer: &Arc<Answer>,
    ) -> Told {
        Told::Refused("not built yet".to_owned())
    }

    pub(super) async fn voided(
        self: &Arc<Self>,
        _from: &RegionName,
        _id: &KeyId,
        _token: Token,
        _nonce: Nonce,
    ) -> Told {
        Told::Refused("not built yet".to_owned())
    }
}
