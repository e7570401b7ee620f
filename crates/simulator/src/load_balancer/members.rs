//! Members of a pool: one by one, or all of them in one request.

use hangar_openstack::wire::{CreateMember, Member};
use http::Method;
use serde_json::json;

use super::children::balancer_of_pool;
use super::{body_of, list, lock, missing, no_route, read, reference};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{PoolMember, State, World};

pub(super) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask, pool: &str, rest: &[&str]) -> Outcome {
    let state = &world.state;
    if let [id] = rest
        && state.members.get(*id).is_none_or(|row| row.pool_id != pool)
    {
        return Err(missing("Member", id));
    }
    let balancer = balancer_of_pool(state, pool);
    match (&ask.method, rest) {
        (&Method::GET, []) => {
            let own = state.members.values().filter(|row| row.pool_id == pool).map(|row| &row.member);
            list("members", own, ask)
        }
        (&Method::GET, [id]) => Ok(Reply::ok(json!({"member": state.members.get(*id).map(|row| &row.member)}))),
        (&Method::POST, []) => {
            let wanted: CreateMember = read(body_of(ask, "member")?)?;
            check(state, pool, &wanted)?;
            lock(world, &balancer, "PENDING_UPDATE")?;
            let member = make(simulator, world, ask, pool, wanted)?;
            Ok(Reply::new(201, json!({"member": member})))
        }
        (&Method::PUT, []) => {
            // Those that are named are there afterwards, the others are not.
            let body = ask.json().map_err(|why| Refusal::octavia(400, why))?;
            let wanted: Vec<CreateMember> = read(body["members"].clone())?;
            lock(world, &balancer, "PENDING_UPDATE")?;
            let same = |row: &PoolMember, wanted: &CreateMember| {
                row.member.address == wanted.address && row.member.protocol_port == wanted.protocol_port
            };
            for id in
                world.state.members.ids(|row| row.pool_id == pool && !wanted.iter().any(|wanted| same(row, wanted)))
            {
                pending(&mut world.state, &id, "PENDING_DELETE");
            }
            for member in wanted {
                if !world.state.members.values().any(|row| row.pool_id == pool && same(row, &member)) {
                    make(simulator, world, ask, pool, member)?;
                }
            }
            Ok(Reply::empty(202))
        }
        (&Method::PUT, [id]) => {
            let wanted = body_of(ask, "member")?;
            lock(world, &balancer, "PENDING_UPDATE")?;
            if let Some(row) = world.state.members.get_mut(id) {
                row.member.name = wanted["name"].as_str().map_or_else(|| row.member.name.clone(), str::to_owned);
                row.member.weight = wanted["weight"]
                    .as_u64()
                    .and_then(|weight| u16::try_from(weight).ok())
                    .unwrap_or(row.member.weight);
                row.member.provisioning_status = "PENDING_UPDATE".to_owned();
            }
            Ok(Reply::ok(json!({"member": world.state.members.get(*id).map(|row| &row.member)})))
        }
        (&Method::DELETE, [id]) => {
            lock(world, &balancer, "PENDING_UPDATE")?;
            pending(&mut world.state, id, "PENDING_DELETE");
            Ok(Reply::empty(204))
        }
        _ => Err(no_route()),
    }
}

fn pending(state: &mut State, id: &str, status: &str) {
    if let Some(row) = state.members.get_mut(id) {
        row.member.provisioning_status = status.to_owned();
    }
}

fn check(state: &State, pool: &str, wanted: &CreateMember) -> Result<(), Refusal> {
    if wanted.address.parse::<std::net::IpAddr>().is_err() {
        let words = format!(
            "Invalid input for field/attribute address. Value: '{}'. Value should be IPv4 or IPv6 format",
            wanted.address
        );
        return Err(Refusal::octavia(400, words));
    }
    let same = |row: &PoolMember| {
        row.pool_id == pool && row.member.address == wanted.address && row.member.protocol_port == wanted.protocol_port
    };
    if state.members.values().any(same) {
        let words = format!(
            "Another member on this pool is already using ip {} on protocol_port {}",
            wanted.address, wanted.protocol_port
        );
        return Err(Refusal::octavia(409, words));
    }
    Ok(())
}

pub(super) fn make(
    simulator: &Simulator,
    world: &mut World,
    ask: &Ask,
    pool: &str,
    wanted: CreateMember,
) -> Result<Member, Refusal> {
    check(&world.state, pool, &wanted)?;
    let member = Member {
        id: world.ids.text(),
        name: wanted.name,
        address: wanted.address,
        protocol_port: wanted.protocol_port,
        weight: wanted.weight.unwrap_or(1),
        subnet_id: wanted.subnet_id,
        provisioning_status: "PENDING_CREATE".to_owned(),
        operating_status: "NO_MONITOR".to_owned(),
        admin_state_up: true,
        tags: wanted.tags,
        project_id: ask.project_id.clone(),
        created_at: simulator.now_seconds(),
        ..Member::default()
    };
    world.state.members.insert(member.id.clone(), PoolMember { pool_id: pool.to_owned(), member: member.clone() });
    if let Some(pool) = world.state.pools.get_mut(pool) {
        pool.members.push(reference(&member.id));
    }
    Ok(member)
}

pub(super) fn settle(state: &mut State, pool: &str) {
    for id in state.members.ids(|row| row.pool_id == pool && row.member.provisioning_status != "ACTIVE") {
        let Some(row) = state.members.get_mut(&id) else { continue };
        if row.member.provisioning_status == "PENDING_DELETE" {
            state.members.remove(&id);
            if let Some(pool) = state.pools.get_mut(pool) {
                pool.members.retain(|reference| reference.id != id);
            }
        } else {
            row.member.provisioning_status = "ACTIVE".to_owned();
        }
    }
}

pub(super) fn remove_all(state: &mut State, pool: &str) {
    for id in state.members.ids(|row| row.pool_id == pool) {
        state.members.remove(&id);
    }
}

/// What a pool leads to.
pub(crate) fn targets(state: &State, pool: &str) -> Vec<(String, u16)> {
    let own = state.members.values().filter(|row| row.pool_id == pool && row.member.weight > 0);
    own.map(|row| (row.member.address.clone(), row.member.protocol_port)).collect()
}
