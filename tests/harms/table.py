"""HARMS: the ways in which an agent that acts on nodes can do harm, what gpuwatch has against each, and the proof.

A proof is a test together with a patch that takes the guard out: with the patch, the test fails. `docs/harms.md` is
made from this table, `test_proofs.py` carries it out.
"""

from typing import NamedTuple


class Patch(NamedTuple):
    """In `file`, the one place with `text` is replaced."""

    file: str
    text: str
    instead: str


class Proof(NamedTuple):
    """The test that fails with the patch."""

    test: str
    patch: Patch


class Harm(NamedTuple):
    """One row. `where`: the code that guards, as file:function."""

    number: int
    harm: str
    guard: str
    where: tuple[str, ...]
    proofs: tuple[Proof, ...]


FLEET = "tests/harms/test_harm_fleet.py::"
PEOPLE = "tests/harms/test_harm_people.py::"
PODS = "tests/harms/test_harm_pods.py::"
MEMORY = "tests/harms/test_harm_memory.py::"
SIGHT = "tests/harms/test_harm_observation.py::"
LINES = "tests/harms/test_harm_lines.py::"
API = "tests/harms/test_harm_api.py::"
POLICY = "tests/harms/test_harm_policy.py::"
RULES = "tests/remediation/service/test_device_rules.py::"
SCOPE = "tests/remediation/planning/test_scope.py::"
QUIET = "tests/harms/test_quiet_day.py::"
RIGHTS = "tests/cluster/test_remediator_rights.py::"
GUARD = "tests/tuning/actuation/test_guard.py::"
PLANTED = "tests/agent/test_planted_socket.py::"
RESTORING = "tests/tuning/actuation/test_restore.py::"
ACTUATOR = "tests/tuning/actuation/test_actuator.py::"
ENFORCING = "tests/tuning/service/test_tuner_enforcing.py::"
LOOP = "tests/tuning/cycle/test_cycle.py::"
CONSENT = "tests/tuning/gates/test_consent.py::"
LABELS = "tests/remediation/planning/test_labels.py::"
CYCLE = "tests/remediation/service/test_remediator.py::"
PLUGIN = "tests/remediation/planning/test_device_plugin.py::"
PLAN = "tests/remediation/planning/test_plan.py::"
REPAIR = "tests/repair/test_repairer.py::"
CASES = "tests/agent/test_support_cases.py::"
VALIDATION = "tests/remediation/planning/test_active_validation.py::"
RECORD = "tests/tuning/actuation/test_record.py::"
SLO = "tests/tuning/cycle/test_slo.py::"


def proof(test: str, file: str, text: str, instead: str) -> Proof:
    """A row's proof; files are below gpuwatch/."""
    return Proof(test, Patch(f"gpuwatch/{file}", text, instead))


HARMS: tuple[Harm, ...] = (
    Harm(
        1,
        "A bad driver or a parser's bug makes every node look sick, and the whole fleet is tainted.",
        "A taint needs one of N slots, Leases that all nodes share. Without a slot, or when slots cannot be read, "
        "nothing is tainted. A share of a small fleet is at least one node.",
        (
            "remediation/planning/slots.py:choose",
            "remediation/planning/slots.py:slot_limit",
            "remediation/planning/quarantine.py:begin",
        ),
        (
            proof(
                f"{FLEET}test_a_bad_driver_on_every_node_taints_no_more_than_the_budget",
                "remediation/planning/slots.py",
                "free = [n for n in range(_reach(others, most - without_slot)) if n not in others]",
                "free = [n for n in range(1000) if n not in others]",
            ),
            proof(
                f"{FLEET}test_a_budget_that_cannot_be_read_allows_nothing",
                "remediation/planning/quarantine.py",
                "    if isinstance(slot, NoSlot):\n",
                "    if isinstance(slot, NoSlot) and slot.unreadable:\n"
                "        from gpuwatch.remediation.model import TakeSlot\n\n"
                '        slot = TakeSlot(slots=1, name="gpuwatch-slot-0")\n'
                "    if isinstance(slot, NoSlot):\n",
            ),
        ),
    ),
    Harm(
        2,
        "The budget loses at a restart how many nodes are out of service.",
        "The cluster's own objects are counted. A slot that is no longer renewed is taken over only when its holder's "
        "Node has neither gpuwatch's taint nor a young claim. With a budget in percent, quarantined nodes without a "
        "slot count, too.",
        (
            "remediation/planning/slots.py:_is_used",
            "remediation/service/slots.py:_run_out",
            "remediation/service/slots.py:uses_a_slot",
        ),
        (
            proof(
                f"{FLEET}test_a_restart_of_all_forgets_no_tainted_node",
                "remediation/planning/slots.py",
                "return bool(lease.holder) and (lease.holder == node or lease.name not in slots.given_up)",
                "return lease.holder == node",
            ),
            proof(
                f"{FLEET}test_who_deletes_the_leases_makes_no_room",
                "remediation/planning/slots.py",
                "without_slot = len(slots.without_slot - {node})",
                "without_slot = 0",
            ),
            proof(
                f"{FLEET}test_a_wrong_clock_makes_no_room_in_the_budget[behind]",
                "remediation/service/slots.py",
                "self._unchanged = {lease: self._unchanged.get(lease, now) for lease in known}",
                "self._unchanged = {(each.name, each.resource_version): "
                "now - self._clock.time() + (each.renewed or 0.0) for each in leases}",
            ),
        ),
    ),
    Harm(
        3,
        "A budget that is used up keeps healthy nodes from coming back.",
        "The budget limits adding a taint, never removing one.",
        ("remediation/planning/recovery.py:_well", "remediation/planning/recovery.py:release"),
        (
            proof(
                f"{FLEET}test_a_budget_never_keeps_a_node_from_being_released",
                "remediation/planning/recovery.py",
                "    elif left <= 0:\n        return release(",
                "    elif left <= 0 and inputs.slots and inputs.slots.leases is not None:\n        return release(",
            ),
        ),
    ),
    Harm(
        4,
        "An intermittent fault makes the taint, and work, come and go.",
        "A node returns only after an unbroken healthy stretch (`recovery_hold`, `min_quarantine`), and only so "
        "often a day. Checks of readings need N of M bad readings to begin and several good ones to end.",
        (
            "remediation/planning/recovery.py:_well",
            "remediation/service/observation.py:update",
            "remediation/planning/quarantine.py:begin",
            "health/judge.py:_apply_hysteresis",
        ),
        (
            proof(
                f"{SIGHT}test_a_fault_that_comes_and_goes_is_one_quarantine",
                "remediation/planning/recovery.py",
                "left = max(config.recovery_hold - clean, config.min_quarantine - lasted)",
                "left = 0.0",
            ),
            proof(
                f"{SIGHT}test_a_node_that_is_sick_again_and_again_is_left_to_a_person",
                "remediation/planning/quarantine.py",
                "if len(times) >= inputs.policy.config.max_quarantines_per_day:",
                "if False:",
            ),
            proof(
                "tests/health/test_checks.py::test_a_flicker_is_no_fault",
                "health/judge.py",
                "if detection is not None and (is_open or sum(track.answers) >= enough):",
                "if detection is not None:",
            ),
        ),
    ),
    Harm(
        5,
        "A taint or cordon that a person set is removed.",
        "Only what gpuwatch's annotation on that Node records is gpuwatch's. A taint with its key but no annotation "
        "stays; `unschedulable` is undone only where gpuwatch set it and it has not been lifted since.",
        (
            "remediation/planning/ownership.py:read_claim",
            "remediation/planning/recovery.py:_undo",
            "remediation/service/node_writer.py:node_patch",
        ),
        (
            proof(
                f"{PEOPLE}test_a_taint_with_our_key_that_a_person_set_is_never_touched",
                "remediation/planning/ownership.py",
                "return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.NONE)",
                "if not node.taint:\n            return NodeClaim(ClaimState.NONE)\n"
                "        value = node.taint.value\n"
                '        owner = Ownership(id="", state="applied", since=0.0, node_uid=node.uid, value=value)\n'
                "        return NodeClaim(ClaimState.APPLIED, owner)",
            ),
            proof(
                f"{PEOPLE}test_a_cordon_that_a_person_set_stays",
                "remediation/planning/recovery.py",
                "unschedulable=False if owner.cordoned and inputs.node.unschedulable else None,",
                "unschedulable=False,",
            ),
        ),
    ),
    Harm(
        6,
        "A person removes the taint, and the agent sets it again and again.",
        "Overruled faults are remembered, on the Node and on disk; only a new occurrence counts.",
        ("remediation/planning/recovery.py:accept_override", "remediation/planning/inputs.py:taint_reasons"),
        (
            proof(
                f"{PEOPLE}test_a_node_that_a_person_untainted_is_left_alone_until_it_happens_again",
                "remediation/planning/inputs.py",
                "new = tuple(fault for fault in found if fault.last > overruled.get(fault.key, -1.0))",
                "new = found",
            ),
        ),
    ),
    Harm(
        7,
        "The taint evicts the agent, or pods that keep the node running.",
        "NoSchedule ends no pod; NoExecute is set only where gpuwatch's pod tolerates it. A drain skips gpuwatch, "
        "DaemonSets, static pods, protected namespaces and pods on healthy GPUs.",
        (
            "config/__init__.py:RemediationConfig",
            "remediation/service/plan_reads.py:check",
            "remediation/planning/draining.py:_stays",
        ),
        (
            proof(
                f"{PODS}test_no_execute_is_not_set_where_it_would_end_ourselves",
                "remediation/service/plan_reads.py",
                "if not reader().tolerates(*pod):",
                "if False:",
            ),
            proof(
                f"{PODS}test_the_taint_ends_no_running_pod_by_default",
                "config/__init__.py",
                'effect: Effect = "NoSchedule"',
                'effect: Effect = "NoExecute"',
            ),
            proof(
                f"{PODS}test_a_sick_node_is_drained_of_gpu_pods_only_as_far_as_they_may_go",
                "remediation/planning/draining.py",
                'return pod.mirror or pod.controller == "DaemonSet" or pod.namespace in config.protected_namespaces',
                "return False",
            ),
            proof(
                f"{PLAN}test_what_has_started_again_on_a_gpu_that_is_well_stays",
                "remediation/planning/draining.py",
                "pod.created <= evictions.newest",
                "True",
            ),
            proof(
                f"{PLAN}test_by_default_the_others_of_a_job_stay",
                "remediation/planning/draining.py",
                'if config.evict == "owner-on-node":',
                "if True:",
            ),
        ),
    ),
    Harm(
        8,
        "Pods are ended without regard to their disruption budgets.",
        "Pods leave through the Eviction API only. After a refusal the wait doubles, and after a deadline "
        "gpuwatch reports it; no pod is ever deleted.",
        (
            "remediation/service/node_writer.py:evict",
            "remediation/planning/draining.py:drain",
            "remediation/planning/draining.py:is_due",
        ),
        (
            proof(
                f"{PODS}test_a_disruption_budget_is_respected_for_as_long_as_it_lasts",
                "kube/transport.py",
                '                _METHODS[call.verb],\n                f"{connection.base}{path}{',
                '                "DELETE" if call.resource == "pods/eviction" else _METHODS[call.verb],\n'
                "                f\"{connection.base}{path.removesuffix('/eviction')}{",
            ),
            proof(
                f"{PODS}test_a_disruption_budget_is_respected_for_as_long_as_it_lasts",
                "remediation/planning/draining.py",
                "return not 0 <= now - attempt.at < wait",
                "return True",
            ),
            proof(
                f"{PODS}test_a_disruption_budget_is_respected_for_as_long_as_it_lasts",
                "remediation/planning/draining.py",
                "if waiting and since is not None and now - since >= config.deadline:",
                "if False:",
            ),
        ),
    ),
    Harm(
        9,
        "A restart loses the fault or clears its condition, and the sick node gets work.",
        "Open findings are on disk, the quarantine's reasons in the Node's annotation. A new process adopts both.",
        ("health/judge.py:_restore", "remediation/planning/plan.py:plan", "storage/store.py:open_findings"),
        (
            proof(
                f"{MEMORY}test_a_restart_without_any_memory_keeps_the_quarantine_and_ends_it_when_all_is_well",
                "remediation/planning/plan.py",
                "        case ClaimState.APPLIED:\n            draft = keep_quarantine(inputs)\n",
                "        case ClaimState.APPLIED if inputs.memory.quarantined:\n"
                "            draft = keep_quarantine(inputs)\n",
            ),
            proof(
                f"{MEMORY}test_an_agent_that_starts_again_remembers_what_it_found",
                "health/judge.py",
                'if check is not None and check.fault_domain != "monitor":',
                "if False:",
            ),
        ),
    ),
    Harm(
        10,
        "A reboot counts as a repair.",
        "A fault ends only when its GPU reads clean, with no repair pending and no action requested. One that returns "
        "too often waits for a person.",
        (
            "health/occurrences.py:is_repaired",
            "remediation/planning/evidence.py:missing_evidence",
            "remediation/planning/quarantine.py:why_held",
        ),
        (
            proof(
                "tests/health/xid/test_judge_xids.py::test_a_gpu_that_is_not_clean_has_not_been_repaired",
                "health/check.py",
                "    waits = gpu.recovery_action or gpu.row_remap.pending or gpu.row_remap.failure\n"
                "    return has_health_readings(gpu) and not waits",
                "    return True",
            ),
            proof(
                f"{MEMORY}test_a_boot_cures_only_what_is_seen_to_be_well",
                "remediation/planning/evidence.py",
                "        for fault in in_force(view, policy, Response.CONDITION)\n",
                "        for fault in ()\n",
            ),
            proof(
                f"{MEMORY}test_a_boot_by_itself_gives_nothing_back",
                "remediation/planning/evidence.py",
                "    state = read_claim(node)\n    began =",
                "    state = read_claim(node)\n"
                "    if state.owner and state.owner.boot_id != observation.view.snapshot.host.boot_id:\n"
                "        return ()\n    began =",
            ),
            proof(
                f"{MEMORY}test_a_fault_that_comes_back_too_often_waits_for_a_person",
                "remediation/planning/quarantine.py",
                "if len(recent) + 1 >= config.repeats:",
                "if False:",
            ),
        ),
    ),
    Harm(
        11,
        "Kernel lines from before the start or a reset count as new faults.",
        "Records are known by boot and number; older or reported ones are listed, not judged. A reset that is "
        "observed voids older faults.",
        ("collect/kernel_log/follower.py:KernelLog", "health/xid/ledger.py:_is_repeated", "health/history.py:_xid"),
        (
            proof(
                f"{LINES}test_old_lines_are_not_acted_on_after_a_start",
                "collect/kernel_log/follower.py",
                "self._events(old, historical=True, late=True)",
                "self._events(old, historical=False, late=True)",
            ),
            proof(
                f"{LINES}test_the_same_record_read_again_is_no_second_fault",
                "health/xid/ledger.py",
                "if (before := self._records.get(key)) is not None and before.line == event.line:",
                "if False:",
            ),
            proof(
                "tests/health/xid/test_judge_xids.py::test_a_reset_before_the_latest_occurrence_does_not",
                "health/occurrences.py",
                "if repair is not None and order < repair.order <= past.order:\n"
                "        return repair.at is None or repair.at >= finding.latest\n",
                "if repair is not None:\n        return True\n",
            ),
        ),
    ),
    Harm(
        12,
        "Kernel lines are missed.",
        "The ring is read from its beginning, overwritten records are counted, a bad record is skipped, and each "
        "sample reads the driver's recovery action.",
        ("collect/kernel_log/ring.py:read", "health/checks/gpu.py:recovery_asked"),
        (
            proof(
                "tests/collect/kernel_log/test_follower.py::test_a_gap_in_the_numbers_is_counted_and_a_new_writer_is_none",
                "collect/kernel_log/ring.py",
                "self.lost += max(gap, 1 if self._overrun else 0)",
                "pass",
            ),
            proof(
                "tests/collect/kernel_log/test_follower.py::test_bad_records_are_counted_and_passed_over",
                "collect/kernel_log/ring.py",
                "                self.malformed += 1\n                continue\n",
                "                continue\n",
            ),
            proof(
                "tests/collect/kernel_log/test_follower.py::test_an_overrun_ring_is_counted_and_reading_continues",
                "collect/kernel_log/ring.py",
                "            self._overrun = True\n",
                "            self._overrun = False\n",
            ),
            proof(
                f"{LINES}test_a_lost_line_is_made_up_for_by_the_drivers_own_word",
                "health/checks/gpu.py",
                "        Response.TAINT,\n        gpu=recovery_asked,",
                "        Response.TAINT,\n        gpu=lambda past: None,",
            ),
        ),
    ),
    Harm(
        13,
        "gpuwatch acts on data that is old or could not be read.",
        "Views and samples have an age; past it nothing is added or reverted. A failed reading neither begins nor "
        "ends a check.",
        (
            "remediation/planning/evidence.py:is_fresh",
            "health/check.py:has_readings",
            "health/check.py:has_health_readings",
        ),
        (
            proof(
                f"{SIGHT}test_an_old_view_neither_adds_nor_removes",
                "remediation/planning/evidence.py",
                "return seconds_fresh(observation) > 0",
                "return observation.view is not None",
            ),
            proof(
                "tests/health/test_checks.py::test_what_cannot_be_read_neither_begins_nor_ends",
                "health/check.py",
                "return not any(error.startswith(reads) for error in gpu.errors)",
                "return True",
            ),
        ),
    ),
    Harm(
        14,
        "A driver call that hangs freezes the metrics, the probes or the agent.",
        "NVML runs in a child process, a thread for each GPU; pages come from the last View. A hanging GPU is "
        "reported (a condition, no taint by default) and delays nothing else.",
        (
            "agent/node_state.py:round_complete",
            "collect/reader/gpu_thread.py:run",
            "health/checks/node.py:gpu_unresponsive",
        ),
        (
            proof(
                "tests/agent/test_node_state.py::test_a_hung_gpu_keeps_no_round_waiting",
                "agent/node_state.py",
                'return all(self._state(k, now) != (GpuState.FRESH, "") for k in waiting)',
                "return not any(waiting)",
            ),
            proof(
                f"{SIGHT}test_a_gpu_that_nobody_can_read_is_neither_sick_nor_well",
                "health/checks/node.py",
                "        Response.CONDITION,\n        gpu=gpu_unresponsive,",
                "        Response.TAINT,\n        gpu=gpu_unresponsive,",
            ),
        ),
    ),
    Harm(
        15,
        "The monitor makes the sick GPU worse: it kills a process inside the driver, or asks again and again.",
        "A reader inside a driver call is never killed. New readers start ever more rarely, and not while several "
        "hang. A lost GPU is asked less often; a slow one rests as long as its call took.",
        (
            "collect/reader/supervisor.py:_run_one",
            "collect/reader/supervisor.py:run",
            "collect/reader/gpu_thread.py:backoff_seconds",
        ),
        (
            proof(
                "tests/harms/test_harm_reader.py::test_a_reader_inside_the_driver_is_not_killed_even_when_it_talks_nonsense",
                "collect/reader/supervisor.py",
                "            if not self._in_driver:\n                process.kill()",
                "            process.kill()",
            ),
            proof(
                "tests/collect/reader/test_supervisor.py::test_no_more_readers_than_may_hang_are_started",
                "collect/reader/supervisor.py",
                "if self.abandoned < MAX_ABANDONED:",
                "if True:",
            ),
            proof(
                "tests/collect/reader/test_gpu_thread.py::test_a_lost_gpu_is_asked_less_and_less_often",
                "collect/reader/gpu_thread.py",
                " if losses else 0.0",
                " if False else 0.0",
            ),
            proof(
                "tests/collect/reader/test_gpu_thread.py::test_one_whose_driver_times_out_inside_is_left_alone_for_as_long",
                "collect/reader/gpu_thread.py",
                " if min(took) > SLOW_SECONDS else 0.0",
                " if False else 0.0",
            ),
        ),
    ),
    Harm(
        16,
        "A failure of the monitor counts as a failure of the GPU.",
        "A dead reader, a driver that does not open or a source that is down is a finding that can never taint; the "
        "GPUs' health is unknown.",
        ("agent/node_state.py:_unread", "health/checks/node.py:MONITOR_CHECKS"),
        (
            proof(
                "tests/agent/test_node_state.py::test_a_reader_that_ended_faults_no_gpu",
                "agent/node_state.py",
                'return GpuState.UNKNOWN, self.failure.reason if self.failure else "the reader is starting"',
                'return GpuState.LOST, self.failure.reason if self.failure else "the reader is starting"',
            ),
            proof(
                f"{SIGHT}test_trouble_of_the_monitor_is_no_fault_of_a_gpu",
                "health/checks/node.py",
                "    if nvml is None or not nvml.up:\n        return UNDECIDED\n",
                '    if nvml is None or not nvml.up:\n        return Detection("no GPU can be read")\n',
            ),
        ),
    ),
    Harm(
        17,
        "A GPU without readings counts as healthy.",
        "`unknown` is a state of its own, of GPUs, node and condition. Releasing a node needs a fresh reading of "
        "every GPU concerned.",
        (
            "health/judge.py:gpu_healths",
            "remediation/planning/evidence.py:_unproven_gpus",
            "remediation/planning/node_events.py:_verdict",
        ),
        (
            proof(
                f"{SIGHT}test_a_gpu_that_nobody_can_read_is_neither_sick_nor_well",
                "health/judge.py",
                "elif status.state is not GpuState.FRESH or uuid in unread:",
                "elif False:",
            ),
            proof(
                f"{SIGHT}test_a_node_of_which_nothing_is_known_is_not_healthy",
                "remediation/planning/node_events.py",
                "    if not inputs.is_fresh:\n        late =",
                "    if False:\n        late =",
            ),
        ),
    ),
    Harm(
        18,
        "The Node's name is another node's, and a healthy machine is tainted.",
        "The name must be configured. Boot id, machine id and system uuid must be this machine's before anything "
        "is written, and one must be known on both sides.",
        ("remediation/planning/evidence.py:identity_mismatch", "kube/reader.py:of"),
        (
            proof(
                f"{PEOPLE}test_a_node_of_another_machine_is_never_written_to",
                "remediation/planning/evidence.py",
                "if a.strip().lower() != b.strip().lower():",
                "if False:",
            ),
            proof(
                f"{PEOPLE}test_without_any_identity_in_common_nothing_is_written",
                "remediation/planning/evidence.py",
                "    if not known:\n",
                "    if False:\n",
            ),
            proof(
                f"{PEOPLE}test_the_hosts_name_is_never_taken_for_the_nodes",
                "kube/reader.py",
                'environment.get("NODE_NAME", "")',
                'environment.get("NODE_NAME", "") or environment.get("HOSTNAME", "")',
            ),
        ),
    ),
    Harm(
        19,
        "A Node that is created again under the same name is treated as the old one.",
        "State and annotation belong to a Node's uid; with another uid neither counts.",
        ("remediation/planning/plan.py:plan", "remediation/planning/ownership.py:read_claim"),
        (
            proof(
                f"{PEOPLE}test_what_a_person_declared_of_a_former_node_does_not_count",
                "remediation/planning/plan.py",
                "memory=memory if memory.node_uid in (None, node.uid) else _of_the_machine(memory)",
                "memory=memory",
            ),
            proof(
                f"{PEOPLE}test_an_annotation_of_a_former_node_makes_nothing_ours",
                "remediation/planning/ownership.py",
                "if owner is None or owner.node_uid != node.uid:",
                "if owner is None:",
            ),
        ),
    ),
    Harm(
        20,
        "Rights are so wide that one node's pod can change every node.",
        "The default mode has no code that writes. Rights are granted by feature (`deploy/components/remediation*`): "
        "reading, to observe; patch of Nodes, Events and one namespace's Leases, to act; evictions only with "
        "draining. Admission policies (`own-node-policy.yaml`, `own-pods-policy.yaml`) compare the token's node, as "
        "RBAC cannot: only gpuwatch's own marks may change, a node has one slot, and only its pods that request a "
        "GPU, or a named device plugin's, may be evicted. `tests/cluster/test_own_node_policy.py` tries each rule on "
        "a real API server.",
        (
            "remediation/service/remediator.py:_connected",
            "remediation/service/node_writer.py:node_patch",
            "config/__init__.py:RemediationConfig",
        ),
        (
            proof(
                f"{PEOPLE}test_the_default_is_to_observe_and_an_observer_never_writes",
                "remediation/service/remediator.py",
                '            if config.mode == "enforce":\n',
                "            if config.mode:\n",
            ),
            proof(
                f"{PEOPLE}test_the_default_is_to_observe_and_an_observer_never_writes",
                "config/__init__.py",
                'mode: Mode = "observe"  # observe: gpuwatch plans',
                'mode: Mode = "enforce"  # observe: gpuwatch plans',
            ),
            proof(
                f"{API}test_the_documented_rights_are_enough_and_no_more_is_asked_for",
                "remediation/service/slots.py",
                "        if isinstance(self._budget.max_unavailable, int):\n            return False\n",
                "",
            ),
            Proof(
                f"{RIGHTS}test_exactly_these_rights_are_needed",
                Patch("deploy/components/remediation-enforce/rbac.yaml", "verbs: [patch]", "verbs: [patch, delete]"),
            ),
            Proof(
                f"{RIGHTS}test_who_observes_needs_no_right_to_write",
                Patch("deploy/components/remediation/rbac.yaml", "verbs: [get]", "verbs: [get, patch]"),
            ),
        ),
    ),
    Harm(
        21,
        "Two controllers write the taints at once, and one loses its change.",
        "A change carries the resourceVersion of the Node it was planned from; after a conflict gpuwatch reads and "
        "plans again. Only a Node without marks of gpuwatch is read from the API server's cache.",
        (
            "remediation/service/node_writer.py:node_patch",
            "remediation/service/remediator.py:_cycle",
            "remediation/service/remediator.py:_read_node",
        ),
        (
            proof(
                f"{API}test_a_taint_that_another_sets_in_the_same_moment_is_not_lost",
                "remediation/service/node_writer.py",
                '    metadata: Json = {"resourceVersion": node.resource_version}\n',
                "    metadata: Json = {}\n",
            ),
            proof(
                f"{CYCLE}test_a_node_as_it_was_before_changes_nothing_and_is_read_again",
                "remediation/service/remediator.py",
                "if not again and self._node is not None",
                "if self._node is not None",
            ),
            proof(
                f"{CYCLE}test_a_claim_that_was_given_up_is_not_trusted_again",
                "remediation/service/remediator.py",
                "            if OWNER not in node.annotations:\n                return node\n",
                "            return node\n",
            ),
        ),
    ),
    Harm(
        22,
        "Thousands of agents flood the API server.",
        "Only changes are written; a heartbeat is due every five minutes, and changed messages wait for it. Every "
        "wait has jitter.",
        (
            "remediation/planning/node_events.py:condition_update",
            "remediation/service/remediator.py:step",
            "remediation/planning/node_events.py:not_yet_created",
        ),
        (
            proof(
                f"{API}test_at_rest_next_to_nothing_is_written",
                "remediation/planning/node_events.py",
                "due = bool(heartbeat) and not 0 <= age < heartbeat",
                "due = True",
            ),
            proof(
                f"{API}test_at_rest_next_to_nothing_is_written",
                "remediation/planning/node_events.py",
                "rewritten = text != old.message and not 0 <= age < max(heartbeat, MESSAGE_SECONDS)",
                "rewritten = text != old.message",
            ),
        ),
    ),
    Harm(
        23,
        "Labels of messages, pids or endless events overload the metrics' storage.",
        "Series are of existing GPUs, codes and pods; processes are opt-in; above `metrics.max_series` whole families "
        "are left out and counted.",
        ("metrics/native/__init__.py:cap", "metrics/native/node.py", "metrics/native/__init__.py:collect"),
        (
            proof(
                "tests/metrics/test_page_cache.py::test_series_above_the_cap_are_dropped_and_counted",
                "metrics/native/__init__.py",
                "        if total > max_series:\n",
                "        if False:\n",
            ),
            proof(
                "tests/metrics/test_native.py::test_processes_are_opt_in",
                "metrics/native/__init__.py",
                'group == "processes" and config.processes',
                'group == "processes"',
            ),
        ),
    ),
    Harm(
        24,
        "Application errors (XIDs 13, 31, 43, 45) take hardware out of service.",
        "Such XIDs only inform their pod, whatever the policy. Many different pods failing on one GPU only is a "
        "reason to look, not to taint.",
        (
            "health/xid/classify.py:classify",
            "remediation/planning/policy.py:answer",
            "remediation/planning/policy.py:compile",
        ),
        (
            proof(
                f"{QUIET}test_no_trouble_by_itself_taints",
                "health/xid/classify.py",
                '    if info.taint:\n        return "fatal"\n',
                '    if info.taint or info.category == "application":\n        return "fatal"\n',
            ),
            proof(
                f"{LINES}test_an_applications_fault_never_taints_whatever_a_policy_says",
                "remediation/planning/policy.py",
                '            _allowed(f"remediation.xids.{code}", response, cap, why)\n',
                "            pass\n",
            ),
        ),
    ),
    Harm(
        25,
        "The process in a kernel line is held responsible or ended.",
        "The pods that the kubelet gave the GPU are reported as possibly affected; the pid decides nothing.",
        (
            "health/history.py:_understood",
            "remediation/planning/node_events.py:pod_events",
            "remediation/planning/draining.py:_affected_pods",
        ),
        (
            proof(
                f"{LINES}test_the_process_in_the_line_is_not_at_fault",
                "health/history.py",
                "pods = past.pods(event.gi) if past else ()",
                "pods = (Workload(pod=event.name),)",
            ),
        ),
    ),
    Harm(
        26,
        "A PCI address is matched with the wrong GPU after a loss or renumbering.",
        "Addresses and UUIDs are learned while GPUs are present, and kept. A fault at an unknown address is the "
        "node's.",
        ("health/history.py:uuid", "health/xid/ledger.py:know", "health/judge.py:_attach_to_gpu"),
        (
            proof(
                f"{LINES}test_a_fault_at_an_unknown_address_is_no_gpus",
                "health/history.py",
                "return event.uuid or self._by_pci.get(pci_key(event.pci))",
                "return event.uuid or self._by_pci.get(pci_key(event.pci)) or next(iter(self.gpus), None)",
            ),
            proof(
                "tests/health/xid/test_ledger.py::test_a_gpu_that_vanished_keeps_its_name",
                "health/xid/ledger.py",
                "        for address, uuid in gpus.items():\n",
                "        self._gpus.clear()\n        for address, uuid in gpus.items():\n",
            ),
        ),
    ),
    Harm(
        27,
        "An unknown code is acted on, or dropped.",
        "It is a finding that can never taint, an event, and a counter of its own.",
        ("health/xid/classify.py:classify", "health/xid/ledger.py:_xid"),
        (
            proof(
                f"{LINES}test_an_unknown_code_is_recorded_and_never_acted_on",
                "health/xid/classify.py",
                '    if info is None:\n        return "unknown"\n',
                '    if info is None:\n        return "fatal"\n',
            ),
            proof(
                f"{LINES}test_an_unknown_code_is_recorded_and_never_acted_on",
                "health/xid/ledger.py",
                "            self.unknown += explain(event.xid) is None\n",
                "",
            ),
        ),
    ),
    Harm(
        28,
        "A contained fault of a MIG instance takes the whole GPU, or is lost.",
        "Only the pods of the instance in the line are affected, and contained XIDs do not taint by default.",
        ("health/gpu_history.py:pods", "health/xid/classify.py:CONTAINED", "collect/kernel_log/lines.py"),
        (
            proof(
                f"{LINES}test_a_contained_fault_hits_one_instance",
                "health/gpu_history.py",
                "if gi is None or instance in (None, gi))",
                "if True)",
            ),
            proof(
                f"{LINES}test_a_contained_fault_hits_one_instance",
                "health/checks/xid.py",
                '        Response.CONDITION,\n        ends="repair",',
                '        Response.TAINT,\n        ends="repair",',
            ),
        ),
    ),
    Harm(
        29,
        "Any user who can write to the kernel log, or choose a program's name, can claim any fault.",
        "Only records of the kernel's facility count. klogctl's lines are joined into records, whose first line alone "
        "can be the driver's.",
        ("collect/kernel_log/lines.py:read_frame", "collect/kernel_log/records.py:records"),
        (
            proof(
                "tests/collect/kernel_log/test_records.py::test_a_program_that_crashes_is_no_fault_whatever_its_name",
                "collect/kernel_log/records.py",
                "is_drivers = is_drivers and _is_read(opened) and",
                "is_drivers = True or",
            ),
            proof(
                f"{LINES}test_lines_that_user_space_wrote_count_for_nothing",
                "collect/kernel_log/lines.py",
                "if frame.facility and not accept_userspace:",
                "if False:",
            ),
        ),
    ),
    Harm(
        30,
        "Two remediators on one node undo each other.",
        "Marks of others (NVSentinel, Karpenter, autoscalers, the GPU operator's upgrade, medik8s, kured, foreign "
        "cordons, configured keys) stop new actions; the opt-out label also reverts gpuwatch's own.",
        (
            "remediation/planning/ownership.py:other_controller",
            "remediation/planning/ownership.py:opted_out",
            "remediation/planning/quarantine.py:new_is_barred",
        ),
        (
            proof(
                f"{PEOPLE}test_a_node_that_others_use_gets_nothing_new",
                "remediation/planning/ownership.py",
                "if mark.idle is None or value not in mark.idle:",
                "if False:",
            ),
            proof(
                f"{PEOPLE}test_a_node_that_opts_out_later_gets_back_what_is_ours",
                "remediation/planning/recovery.py",
                "    if opted_out(inputs.node):\n",
                "    if False:\n",
            ),
        ),
    ),
    Harm(
        31,
        "A typo in the configuration widens a rule or switches it off.",
        "Unknown keys, checks, responses and values are errors that name the nearest known one, at start and at "
        "reload; the policy in force stays.",
        ("config/__init__.py:parse", "remediation/planning/policy.py:compile", "process/signals.py:reload"),
        (
            proof(
                f"{POLICY}test_a_typo_changes_nothing_and_is_named",
                "process/signals.py",
                "            self.refuse(str(error))\n            return None\n",
                "            self.refuse(str(error))\n            new = Config()\n",
            ),
            proof(
                f"{POLICY}test_a_policy_about_a_check_that_is_none_is_refused",
                "remediation/planning/policy.py",
                "    if name not in checks:\n        near =",
                "    if False:\n        near =",
            ),
        ),
    ),
    Harm(
        32,
        "After an upgrade or an uninstall taints stay behind.",
        "`gpuwatch node release --forget` reverts all that the Node's annotation records, wherever the remediator "
        "was stopped.",
        ("remediation/planning/manual_quarantine.py:release", "cli/node/node.py"),
        (
            proof(
                f"{PEOPLE}test_an_uninstall_leaves_nothing_behind",
                "remediation/planning/manual_quarantine.py",
                "taints = foreign_taints(node, owner) if owner else node.taints",
                "taints = node.taints",
            ),
            proof(
                f"{PEOPLE}test_an_uninstall_leaves_nothing_behind",
                "remediation/planning/manual_quarantine.py",
                "    if forget:\n",
                "    if False:\n",
            ),
        ),
    ),
    Harm(
        33,
        "A reset of one GPU breaks the NVLinks of its peers and the work on them.",
        "The remediator resets no GPU: it prints the ladder (drain, reset, reboot, inspect) and requests a reboot, "
        "where configured, after the drain. Only one file has NVML calls that change anything.",
        ("remediation/planning/recovery.py:_draining", "health/xid/classify.py:FATAL_ACTIONS"),
        (
            proof(
                f"{PODS}test_a_reboot_is_asked_for_only_when_all_who_had_to_go_have_gone",
                "remediation/planning/recovery.py",
                "    if result.is_done:\n",
                "    if True:\n",
            ),
            proof(
                f"{API}test_nothing_in_the_package_can_reset_a_gpu",
                "remediation/service/reboot_sentinel.py",
                'MARK = "gpuwatch:',
                'RESET = "nvmlDeviceResetGpuLockedClocks"\nMARK = "gpuwatch:',
            ),
        ),
    ),
    Harm(
        34,
        "A GPU that its power limit or heat slows down is taken out of service.",
        "A software power cap is normal; brakes and heat over several readings are a condition, never a taint by "
        "default.",
        ("health/checks/gpu.py:BOARD_CHECKS",),
        (
            proof(
                f"{SIGHT}test_a_gpu_that_is_held_back_keeps_its_work",
                "health/checks/gpu.py",
                '        Response.CONDITION,\n        gpu=_slowed("hw_power_brake_slowdown"',
                '        Response.TAINT,\n        gpu=_slowed("hw_power_brake_slowdown"',
            ),
        ),
    ),
    Harm(
        35,
        "The expected number of GPUs is learned wrongly, and a complete node counts as broken.",
        "It is configured, or compared with the PCI bus and NVML, never learned. A missing GPU is reported and "
        "taints nothing by default.",
        ("health/checks/node.py:gpus_missing", "agent/view_builder.py:view"),
        (
            proof(
                f"{SIGHT}test_a_wrong_number_of_gpus_is_reported_and_not_acted_on",
                "health/checks/node.py",
                "        Response.CONDITION,\n        node=gpus_missing,",
                "        Response.TAINT,\n        node=gpus_missing,",
            ),
        ),
    ),
    Harm(
        36,
        "Restoring a power limit raises it above the original, or undoes a person's change.",
        "A record above the original is refused, and only a limit that still has the recorded value is touched. "
        "What cannot be read is not written.",
        (
            "tuning/model/setting.py:power_target",
            "tuning/actuation/record.py:_invalid_reason",
            "tuning/actuation/restore.py:restore_setting",
        ),
        (
            proof(
                f"{RESTORING}test_s9_what_another_program_has_set_since_is_left_alone",
                "tuning/model/setting.py",
                "ours = any(is_same(now.configured, applied) for applied in setting.applied)",
                "ours = True",
            ),
            proof(
                "tests/tuning/actuation/test_restore_value.py::test_nothing_is_ever_set_above_the_original",
                "tuning/model/setting.py",
                "target = min(setting.original, now.most)",
                "target = now.most",
            ),
            proof(
                f"{RECORD}test_what_would_raise_or_makes_no_sense_is_neither_written_nor_read",
                "tuning/actuation/record.py",
                "above = original is not None and max(applied) > original",
                "above = False",
            ),
        ),
    ),
    Harm(
        37,
        "Settings from before a reboot or driver reload are restored on GPUs that others have set since.",
        "A record names its boot and driver. With another boot or driver it is dropped; with an unknown boot "
        "nothing is written.",
        ("tuning/model/setting.py:expiry_reason", "tuning/actuation/restore.py:_restore_gpu"),
        (
            proof(
                f"{RESTORING}test_s5_settings_of_another_boot_or_driver_are_dropped_not_restored",
                "tuning/model/setting.py",
                "if boot_id is not None and setting.boot_id != boot_id:",
                "if False:",
            ),
            proof(
                f"{RESTORING}test_s6_while_the_boot_is_unknown_nothing_is_written",
                "tuning/actuation/restore.py",
                "if self._boot_id is None:",
                "if False:",
            ),
        ),
    ),
    Harm(
        38,
        "A tuner dies or hangs and its GPUs stay slow; or its guard reverts a living tuner's settings.",
        "The guard is a process of its own that acts after 30 s of silence by a clock that does not jump. It reads "
        "the record before the heartbeat.",
        ("tuning/actuation/guard.py:_abandoned", "tuning/actuation/guard.py:step"),
        (
            proof(
                f"{GUARD}test_s4_three_missed_beats_of_ten_seconds_and_all_is_restored",
                "tuning/actuation/guard.py",
                "        if age >= self._timeout:\n",
                "        if False:\n",
            ),
            proof(
                f"{GUARD}test_while_the_tuner_beats_nothing_is_touched",
                "tuning/actuation/guard.py",
                "        if latest is not None and latest != self._latest:\n",
                "        if False:\n",
            ),
            proof(
                f"{GUARD}test_a_tuner_that_begins_while_the_guard_reads_keeps_its_settings",
                "tuning/actuation/guard.py",
                "        recorded = self._is_recorded()\n        latest =",
                "        self._latest = self._heartbeat.latest()\n"
                "        recorded = self._is_recorded()\n        latest = self._latest or",
            ),
        ),
    ),
    Harm(
        39,
        "A user who can write the record of settings makes a privileged process set values or write elsewhere.",
        "A record of another user, or writable by others, is refused; gpuwatch never writes it through a link, and "
        "refuses a setting listed twice.",
        ("storage/versioned_file.py:read", "storage/versioned_file.py:replace_file", "tuning/actuation/record.py:read"),
        (
            proof(
                f"{RECORD}test_a_file_that_others_may_read_or_write_is_not_acted_on",
                "storage/versioned_file.py",
                "if self._mode & ~0o700 else 0o077",
                "if self._mode & ~0o700 else 0",
            ),
            proof(
                f"{RECORD}test_a_link_that_lies_in_wait_is_not_written_through",
                "storage/versioned_file.py",
                'partial.unlink(missing_ok=True)\n        with open(partial, "xb", opener=_create)',
                'with open(partial, "wb")',
            ),
        ),
    ),
    Harm(
        40,
        "A GPU that comes and goes keeps changing Node labels.",
        "Labels change at most once in five minutes, and only to another value. The time of the last change is on the "
        "Node.",
        ("remediation/planning/labels.py:publication",),
        (
            proof(
                f"{API}test_a_gpu_that_comes_and_goes_is_no_storm_of_label_changes",
                "remediation/planning/labels.py",
                "    if 0 <= inputs.now - published.at < LABEL_SECONDS:\n",
                "    if False:\n",
            ),
        ),
    ),
    Harm(
        41,
        "A label that a person put on a Node or changed is overwritten or removed.",
        "A label is gpuwatch's only while the Node's annotation records it and its value is the one gpuwatch wrote.",
        ("remediation/planning/labels.py:_changes", "remediation/planning/labels.py:published_by_us"),
        (
            proof(
                f"{LABELS}test_a_label_that_a_person_has_set_or_changed_is_theirs",
                "remediation/planning/labels.py",
                "        if there is not None and there != ours:",
                "        if False:",
            ),
        ),
    ),
    Harm(
        42,
        "A tuner sets a limit above the operator's, or a clock that the GPU does not have.",
        "An order above the original is refused; a rounding error is cut to it. The original is the value before the "
        "first write.",
        ("tuning/model/setting.py:watts_to_set", "tuning/model/setting.py:original_limit"),
        (
            proof(
                "tests/tuning/actuation/test_order_values.py::test_s1_what_is_off_by_less_than_the_driver_rounds_is_clipped",
                "tuning/model/setting.py",
                "return max(least, min(watts, original))",
                "return max(least, watts)",
            ),
            proof(
                "tests/tuning/actuation/test_order_values.py::"
                "test_the_original_is_what_is_configured_before_the_first_write_and_then_what_is_recorded",
                "tuning/model/setting.py",
                "    return before.original\n",
                "    return board.limit\n",
            ),
        ),
    ),
    Harm(
        43,
        "A tuner dies between setting a value and recording it, and the value to restore is lost.",
        "Each value is on disk before the driver is asked for it, and stays there while it may be in force.",
        ("tuning/actuation/actuator.py:_set",),
        (
            proof(
                f"{ACTUATOR}test_s2_it_is_on_the_disk_when_the_driver_is_asked",
                "tuning/actuation/actuator.py",
                "if before is None or value not in before.applied:",
                "if before is None:",
            ),
        ),
    ),
    Harm(
        44,
        "A tuner that ends leaves GPUs slow, or sets something after it reverted everything.",
        "Once it ends nothing is set; an order under way is awaited and reverted. What the driver does not revert "
        "in time stays recorded, for the guard.",
        ("tuning/service/tuner.py:end", "tuning/actuation/actuator.py:restore"),
        (
            proof(
                "tests/tuning/actuation/test_actuator_restores.py::"
                "test_s3_an_actuator_that_is_closed_has_restored_and_sets_nothing_any_more",
                "tuning/actuation/actuator.py",
                "            elif not self._closed:\n",
                "            else:\n",
            ),
            proof(
                f"{ENFORCING}test_s3_at_the_end_all_is_restored_nothing_is_set_any_more_and_the_next_one_knows",
                "tuning/service/tuner.py",
                "                self._restore(self._actuator, Trigger.EXIT)\n",
                "",
            ),
        ),
    ),
    Harm(
        45,
        "A tuner hangs in the driver while its guard reverts; the call returns later, and its record is gone.",
        "A process that reverts while another holds the GPU keeps the record.",
        ("tuning/actuation/restore.py:_restore_gpu", "tuning/actuation/record.py:lock_gpu"),
        (
            proof(
                f"{RESTORING}test_a_gpu_that_another_process_is_at_is_restored_and_not_forgotten_and_the_others_are",
                "tuning/actuation/restore.py",
                "            if held:\n                found = self._drop_restored(found)\n",
                "            found = self._drop_restored(found)\n",
            ),
        ),
    ),
    Harm(
        46,
        "A tuner sets caps without a guard: `kill -9` would leave them for ever.",
        "Nothing is set before the guard's first heartbeat, and after 30 s without one everything is reverted.",
        ("tuning/cycle/obstacles.py:node_obstacles", "tuning/service/state_dir.py:is_alive"),
        (
            proof(
                f"{ENFORCING}test_s4_without_a_guard_nothing_is_set_and_what_was_set_is_restored",
                "tuning/cycle/obstacles.py",
                "    if not inputs.guarded:\n",
                "    if False:\n",
            ),
            proof(
                f"{ENFORCING}test_the_heartbeat_of_a_guard_long_dead_is_not_taken_for_one",
                "tuning/service/state_dir.py",
                "            if self._stamp is not None:  # the first one",
                "            if True:  # the first one",
            ),
        ),
    ),
    Harm(
        47,
        "Work is slowed whose owners never agreed, or have changed their mind.",
        "Operator, Node, namespace and pod may each allow less than the others, none more. An unknown, outdated "
        "or unclear answer is a no.",
        ("tuning/gates/consent.py:tuning_request", "tuning/gates/consent.py:consent_decision"),
        (
            proof(
                f"{CONSENT}test_the_least_permissive_of_all_wins",
                "tuning/gates/consent.py",
                "return min(decisions, key=lambda each: MODES.index(each.mode), default=None)",
                "return decisions[0] if decisions else None",
            ),
            proof(
                f"{CONSENT}test_what_is_not_known_of_a_pod_is_no_consent",
                "tuning/gates/consent.py",
                "return None if consents is None or consents.is_old(now) else",
                "return None if consents is None else",
            ),
        ),
    ),
    Harm(
        48,
        "A user who can write the file of consents decides whose GPUs are slowed.",
        "A file of another user, writable by others, or a link is refused; then no pod has consented.",
        ("consents/file.py:read", "storage/versioned_file.py:read"),
        (
            proof(
                "tests/consents/test_file.py::test_a_file_that_others_may_write_is_not_trusted",
                "storage/versioned_file.py",
                " or status.st_mode & excess:",
                ":",
            ),
        ),
    ),
    Harm(
        49,
        "A cap found for one pod's work slows the next one's.",
        "With other owners, other GPUs, or only new processes the cap is lifted in the same cycle, and the search "
        "begins again.",
        ("tuning/gates/owners.py:follow", "tuning/cycle/gang.py:decide"),
        (
            proof(
                f"{LOOP}test_s7_another_owner_never_runs_under_the_cap_of_the_one_before[processes]",
                "tuning/cycle/gang.py",
                "before = None if is_other else memory.tuned.get(gang.key)",
                "before = memory.tuned.get(gang.key)",
            ),
        ),
    ),
    Harm(
        50,
        "One GPU of a job is slowed, and all others wait for it and save nothing.",
        "GPUs of one owner always have one cap; an objection to one holds for all.",
        ("tuning/gates/owners.py:gangs", "tuning/cycle/gang.py:_together"),
        (
            proof(
                f"{LOOP}test_s8_a_fault_lifts_its_gpu_and_those_of_the_same_work_and_rests",
                "tuning/cycle/gang.py",
                "return {uuid: in_order(each) or (apart,) for uuid, each in closed.items()}",
                "return closed",
            ),
        ),
    ),
    Harm(
        51,
        "A cap hides that a GPU is sick or hot.",
        "A fault, an XID, a thermal or hardware slowdown lifts the cap in the same cycle, and the GPU is left "
        "alone for ten minutes.",
        ("tuning/gates/eligibility.py:GATES",),
        (
            proof(
                f"{LOOP}test_s8_a_gpu_that_slows_itself_is_not_held_down_by_us_too[hw_slowdown]",
                "tuning/gates/eligibility.py",
                "    Gate(ObstacleReason.SLOWDOWN, _sampled(_slowdown), cooldown=COOLDOWN_SECONDS),\n",
                "",
            ),
        ),
    ),
    Harm(
        52,
        "Two power managers change one setting against each other.",
        "A clock or limit that is neither gpuwatch's nor the original is another manager's: gpuwatch reverts its "
        "own and leaves the GPU alone for an hour.",
        ("tuning/gates/conflict.py:check", "tuning/gates/cooldowns.py:conflict_cooldown"),
        (
            proof(
                f"{LOOP}test_s9_clocks_that_another_program_has_reset_are_theirs_for_an_hour",
                "tuning/cycle/obstacles.py",
                ", *cooldown_obstacles(gpu.uuid, cooldowns, inputs.now)",
                "",
            ),
            proof(
                "tests/tuning/actuation/test_order_values.py::test_s9_what_is_neither_ours_nor_the_original_belongs_to_another_program",
                "tuning/model/setting.py",
                "    if is_foreign(before, board.limit):\n",
                "    if False:\n",
            ),
        ),
    ),
    Harm(
        53,
        "Settings change all the time, and work never runs at one speed.",
        "The tries of another cap an hour are limited; a revert never counts and never waits.",
        ("tuning/gates/cooldowns.py:wait_seconds", "tuning/cycle/gang.py:_attempt"),
        (
            proof(
                f"{ENFORCING}test_s10_the_actuator_is_asked_for_no_more_than_the_loop_allows",
                "tuning/cycle/gang.py",
                "    if wait := max((each or 0.0 for each in waits), default=0.0):\n",
                "    if wait := 0.0:\n",
            ),
        ),
    ),
    Harm(
        54,
        "Work is slowed by more than was promised, unnoticed.",
        "A held cap is compared with full speed every half hour, and at once when the work changes; one that "
        "breaks the bound is raised or reverted.",
        ("tuning/energy/hold.py:keeps", "tuning/energy/hold.py:is_odd"),
        (
            proof(
                "tests/tuning/energy/test_tuner.py::test_three_failed_verifications_end_it",
                "tuning/energy/hold.py",
                "return newest.upper >= 1 - terms.slowdown and everything.ratio >= 1 - terms.slowdown",
                "return True",
            ),
            proof(
                "tests/tuning/energy/test_tuner.py::test_steeper_work_is_noticed_and_slowed_for_less_than_a_minute",
                "tuning/energy/hold.py",
                "return any(abs(now - mean) > allowed for now, (mean, allowed)",
                "return any(abs(now - mean) > 99 for now, (mean, allowed)",
            ),
        ),
    ),
    Harm(
        55,
        "The limits of a node's GPUs add up to more than its budget or breaker.",
        "Limits are lowered and read back before any is raised. A GPU that cannot be read counts with its "
        "maximum, and until then nothing is raised.",
        ("tuning/power_budget/loop.py:cycle", "tuning/power_budget/limits.py"),
        (
            proof(
                "tests/tuning/power_budget/test_write_order.py::test_decreases_come_first_and_the_largest_before_the_others",
                "tuning/power_budget/limits.py",
                "key=lambda move: (_rise(move) > 0,",
                "key=lambda move: (_rise(move) < 0,",
            ),
            proof(
                "tests/tuning/power_budget/test_write_order.py::"
                "test_who_cannot_be_read_counts_for_the_most_and_is_not_written",
                "tuning/power_budget/limits.py",
                "return self.most if self.watts is None else self.watts",
                "return self.watts or 0.0",
            ),
        ),
    ),
    Harm(
        56,
        "A tuner that should only observe sets something.",
        "A process not started to enforce loads no driver and has no actuator, and a reload cannot add one. Other "
        "modes give no orders.",
        ("cli/tune/driver_access.py:nvml_actuator", "tuning/service/tuner.py:checked", "tuning/cycle/cycle.py:_orders"),
        (
            proof(
                f"{ACTUATOR}test_s12_in_no_other_mode_than_enforce_there_is_an_actuator",
                "cli/tune/driver_access.py",
                '    if config.tuning.mode != "enforce":\n',
                "    if False:\n",
            ),
            proof(
                "tests/tuning/service/test_tuner.py::test_s12_a_tuner_that_was_started_to_observe_cannot_begin_to_enforce",
                "tuning/service/tuner.py",
                'if config.tuning.mode == "enforce" and not enforcing:',
                "if False:",
            ),
            proof(
                f"{LOOP}test_s12_without_enforce_nothing_is_ordered_whatever_is_recorded",
                "tuning/cycle/cycle.py",
                "    if not inputs.enforcing:\n        return\n",
                "",
            ),
        ),
    ),
    Harm(
        57,
        "A process without rights makes the kernel print a false XID or SXid, and a healthy node is taken out of "
        "service.",
        "An XID or fatal SXid acts only when the driver confirms it within `checks.xid_confirm_within`: by its event, "
        "a state that comes with such a fault, or its silence. Until then it is only observed. A line about a lost "
        "GPU counts only while the GPU does not answer.",
        (
            "health/corroboration.py:unconfirmed",
            "health/corroboration.py:driver_state",
            "health/checks/node.py:gpu_lost",
            "remediation/planning/policy.py:answer",
        ),
        (
            proof(
                f"{LINES}test_a_line_that_the_driver_does_not_confirm_changes_nothing[79]",
                "health/judge.py",
                "if news.by_kernel and found.check in UNCONFIRMED:",
                "if False:",
            ),
            proof(
                f"{LINES}test_a_fatal_sxid_that_nothing_confirms_takes_no_node_and_ends",
                "health/corroboration.py",
                '    "sxid_fatal": "sxid_unconfirmed",\n',
                "",
            ),
            proof(
                "tests/health/test_corroboration.py::test_the_driver_may_be_first_but_not_long_before",
                "health/corroboration.py",
                "if is_wanted and other.latest >= finding.latest - within and _is_about(other, finding):",
                "if is_wanted and _is_about(other, finding):",
            ),
            proof(
                "tests/health/test_corroboration.py::test_a_line_about_a_lost_gpu_counts_only_while_it_is_silent",
                "health/checks/node.py",
                "if past.lost_line is not None and past.hangs:",
                "if past.lost_line is not None:",
            ),
        ),
    ),
    Harm(
        58,
        "A forged record makes a restore raise a power limit or undo an administrator's lock.",
        "Only tuner and guard can write the record's folder; the key of its seal changes whenever it has been empty. "
        "A restore sets at most the default and what was read before, and leaves clocks alone that run above the "
        "recorded lock.",
        (
            "tuning/actuation/record.py:SettingsRecord",
            "tuning/actuation/driver.py:power_limits",
            "tuning/actuation/restore.py:_unlock",
        ),
        (
            proof(
                "tests/tuning/actuation/test_record.py::test_a_line_without_the_seal_of_this_record_is_not_acted_on",
                "tuning/actuation/record.py",
                "if found == before:",
                "return found.actuation\n            if found == before:",
            ),
            proof(
                f"{RESTORING}test_a_limit_goes_back_to_no_more_than_the_default",
                "tuning/actuation/driver.py",
                'min(most, self._call("nvmlDeviceGetPowerManagementDefaultLimit", gpu)) / 1e3',
                "most / 1e3",
            ),
            proof(
                f"{RESTORING}test_clocks_that_run_above_our_lock_are_left_alone",
                "tuning/actuation/restore.py",
                "<= cap + TOLERANCE_HERTZ:",
                "<= 1e12:",
            ),
        ),
    ),
    Harm(
        59,
        "Another user plants a socket, link or folder, and gpuwatch trusts a forged View or deletes files there.",
        "No run folder is below /tmp; only root and this user may write on the way to one. A View is accepted "
        "only from root, this user or `agent.socket_uid`. A simulation deletes only what a simulation made.",
        (
            "storage/private_folder.py:check_way",
            "agent/client.py:connect",
            "sim/directory.py:_refuse_foreign_trees",
        ),
        (
            proof(
                f"{PLANTED}test_a_view_of_another_users_process_is_not_taken",
                "agent/client.py",
                "if uid not in self._trusted:",
                "if False:",
            ),
            proof(
                f"{PLANTED}test_a_simulation_deletes_no_folder_that_none_has_made",
                "sim/directory.py",
                "        _refuse_foreign_trees(directory)\n",
                "",
            ),
            proof(
                f"{PLANTED}test_a_simulation_does_not_begin_at_a_planted_link",
                "storage/private_folder.py",
                "if status.st_uid not in (0, os.geteuid()):",
                "if False:",
            ),
        ),
    ),
    Harm(
        60,
        "A pod's progress counter or SLO reaches into the network, or keeps a cap that costs too much.",
        "Only the pod's own address is asked, without redirects, with bounded bytes, time and buckets. GPU counters "
        "that show too slow a cap overrule both. A cap is lifted in the window in which the SLO fails.",
        (
            "consents/progress.py:fetch",
            "consents/progress.py:buckets",
            "tuning/energy/estimate.py:contradicted",
            "tuning/energy/tuner.py:_slo_broken",
        ),
        (
            proof(
                "tests/consents/test_progress.py::test_only_an_address_that_can_be_a_pods_own_is_asked",
                "consents/progress.py",
                " or (own.is_loopback and not loopback)",
                "",
            ),
            proof(
                "tests/tuning/cycle/test_progress.py::"
                "test_a_count_that_shows_no_loss_is_overruled_where_all_gpu_counters_show_one",
                "tuning/energy/estimate.py",
                "< 1 - slowdown - VETO",
                "< 0",
            ),
            proof(
                f"{SLO}test_a_cap_is_lifted_within_two_windows_when_the_slo_does_not_hold",
                "tuning/energy/tuner.py",
                "        if held is False:\n            return _slo_broken",
                "        if False:\n            return _slo_broken",
            ),
            proof(
                "tests/tuning/energy/test_slo.py::test_counts_that_cannot_be_are_no_requests",
                "tuning/energy/slo.py",
                "min(step) < 0 or step != sorted(step) or ",
                "",
            ),
            proof(
                f"{SLO}test_a_page_that_says_all_is_well_is_overruled_where_all_gpu_counters_show_a_slowdown",
                "tuning/energy/search.py",
                "if contradicted(pairs, terms.slowdown) or work.mean",
                "if work.mean",
            ),
        ),
    ),
    Harm(
        61,
        "One GPU is sick, and the work of its healthy neighbours ends by eviction or reboot.",
        "A quarantine of scope gpu evicts only pods that the kubelet ties to the sick GPU, within the same "
        "budgets and deadline. Where a reboot is needed, the scope is the node. NoExecute waits for the device "
        "plugin.",
        (
            "remediation/planning/draining.py:_affected_pods",
            "remediation/planning/scope.py:_not_one_gpu",
            "remediation/planning/scope.py:waits_for_plugin",
            "remediation/service/slots.py:uses_a_slot",
        ),
        (
            proof(
                f"{PODS}test_with_scope_gpu_only_the_pods_of_the_sick_gpu_are_evicted",
                "remediation/planning/draining.py",
                "if everything or use.gpu in gpus]",
                "if True]",
            ),
            proof(
                f"{PODS}test_no_reboot_is_asked_for_while_other_gpus_of_the_node_work",
                "remediation/planning/scope.py",
                "if (handover.annotation or handover.sentinel) and fault.remedy in REBOOTS:",
                "if False:",
            ),
            proof(
                f"{SCOPE}test_with_no_execute_the_taint_waits_for_the_plugin_and_not_for_ever",
                "remediation/planning/quarantine.py",
                "if not barriers and (wait := waits_for_plugin(inputs, faults)):",
                'if wait := "":',
            ),
            proof(
                f"{PODS}test_with_scope_gpu_the_budget_holds_as_well",
                "remediation/service/slots.py",
                '(owner.scope == "gpu" or abs(now - owner.since) < CLAIM_SECONDS)',
                "abs(now - owner.since) < CLAIM_SECONDS",
            ),
        ),
    ),
    Harm(
        62,
        "The list of allocatable GPUs is wrong or old, the node stays untainted, and pods start on the sick GPU.",
        "The taint is left out only when the kubelet's list lacks every sick GPU and the Node's figures agree. A pod "
        "that starts on a sick GPU, or that GPU's return to the list, taints the node. A fault of the node, NVLinks "
        "or the fabric always takes it.",
        ("remediation/planning/scope.py:why_node", "remediation/planning/recovery.py:_rescoped"),
        (
            proof(
                f"{PODS}test_a_list_of_the_kubelet_that_the_node_denies_does_not_keep_the_node_in_service",
                "remediation/planning/scope.py",
                "if sum(node.capacity.values()) - sum(node.allocatable.values()) < len(gpus):",
                "if False:",
            ),
            proof(
                f"{PODS}test_a_gpu_that_is_given_to_pods_again_while_it_is_sick_takes_the_node_out",
                "remediation/planning/scope.py",
                "if withheld is not None and fault.gpu not in withheld:",
                "if False:",
            ),
            proof(
                f"{SCOPE}test_a_pod_that_is_started_on_the_sick_gpu_proves_the_list_wrong",
                "remediation/planning/recovery.py",
                "    if result.late:\n",
                "    if False:\n",
            ),
            proof(
                f"{PODS}test_a_gpu_that_is_given_to_pods_again_while_it_is_sick_takes_the_node_out",
                "remediation/planning/recovery.py",
                'if owner.scope == "node" and still and not (why or owner.distrusted or owner.handover is not None):',
                'if owner.scope == "node" and still and not (why or owner.handover is not None):',
            ),
        ),
    ),
    Harm(
        63,
        "A DeviceTaintRule names another node's or a healthy GPU, stays for ever, or a person's is deleted.",
        "Devices are NVIDIA's in this Node's pool with the GPU's UUID. A rule is recorded on the Node first; only one "
        "with its quarantine's id is deleted. An admission policy bounds the rights to this Node's GPUs; "
        "`tests/cluster/test_device_rules.py` tries them with a stolen token.",
        (
            "kube/devices.py:_gpus",
            "remediation/service/node_writer.py:_delete_rule",
            "remediation/planning/recovery.py:_delete_rules",
            "remediation/planning/scope.py:over_gpu_budget",
        ),
        (
            proof(
                f"{RULES}test_a_slice_that_lies_leads_to_no_rule_and_the_node_is_taken[lie0]",
                "kube/devices.py",
                "if (s.spec.driver, s.spec.node_name, s.spec.pool.name) == (DRIVER, node, node)",
                "if (s.spec.node_name, s.spec.pool.name) == (node, node)",
            ),
            proof(
                f"{RULES}test_a_rule_of_the_same_name_that_a_person_made_is_never_deleted",
                "remediation/service/node_writer.py",
                "            if rule.owner != owner:\n",
                "            if False:\n",
            ),
            proof(
                "tests/remediation/planning/test_device_rules.py::test_a_crash_after_any_step_leaves_no_rule_behind[3]",
                "remediation/planning/quarantine.py",
                "rules = (DeleteRule(name=name, owner=inputs.owner.id) for name in inputs.owner.rules)",
                "rules = ()",
            ),
            proof(
                "tests/remediation/planning/test_device_rules.py::"
                "test_a_budget_in_gpus_holds_back_a_further_one_and_does_not_take_the_node_instead",
                "remediation/planning/scope.py",
                "    if len(out) <= limit:\n",
                "    if True:\n",
            ),
        ),
    ),
    Harm(
        64,
        "A GPU that reads well but computes wrongly gets work again.",
        "With `validate: active` each faulty GPU must pass the active checks and the operator's command after its "
        "fault and in this boot. A GPU in use proves nothing.",
        (
            "remediation/planning/evidence.py:unvalidated",
            "agent/repairs.py:validations",
            "diagnose/validation.py:validate",
        ),
        (
            proof(
                f"{VALIDATION}test_without_a_proof_of_that_gpu_after_its_fault_in_this_boot_the_quarantine_stays",
                "remediation/planning/evidence.py",
                "if since and (proof is None or proof.at <= max(since)):",
                "if since and proof is None:",
            ),
            proof(
                f"{VALIDATION}test_a_fault_of_the_node_asks_for_a_proof_of_every_gpu",
                "remediation/planning/evidence.py",
                "if fault.gpu == uuid or fault.gpu not in known]",
                "if fault.gpu == uuid]",
            ),
            proof(
                "tests/agent/test_repairs.py::test_a_fault_after_a_validation_takes_it_away_for_good",
                "agent/repairs.py",
                "f.latest > v.at for f in faults",
                "False for f in faults",
            ),
            proof(
                "tests/diagnose/test_validation.py::test_a_gpu_in_use_proves_nothing",
                "diagnose/validation.py",
                "if not message and not_tried:",
                "if False:",
            ),
            proof(
                "tests/diagnose/test_validation.py::test_a_command_that_fails_fails_the_gpu",
                "diagnose/validation.py",
                "if ended.status != 0:",
                "if ended.status is None:",
            ),
        ),
    ),
    Harm(
        65,
        "The wrong GPU is reset.",
        "The command names the GPU by UUID, and the configuration is refused without it. Index, device file and "
        "UUID come from one sample of a View of this machine and boot.",
        ("config/errors.py:FORMS", "repair/reset.py:reset", "repair/repairer.py:step"),
        (
            proof(
                f"{REPAIR}test_a_sick_gpu_that_nothing_uses_is_reset_and_named_by_its_uuid",
                "repair/reset.py",
                '{"uuid": identity.uuid, "index": str(identity.index)}',
                '{"uuid": str(identity.index), "index": str(identity.index)}',
            ),
            proof(
                f"{REPAIR}test_a_view_of_another_boot_is_not_acted_on",
                "repair/repairer.py",
                "elif view.snapshot.host.boot_id != self._boot_id:",
                "elif False:",
            ),
            proof(
                "tests/config/test_repair_settings.py::test_a_reset_that_does_not_name_the_gpu_is_refused",
                "config/errors.py",
                'if any("{uuid}" in part for part in value)',
                "if True",
            ),
        ),
    ),
    Harm(
        66,
        "A GPU is reset under work, or while new work may come.",
        "Pods, processes, memory in use, vGPUs, MIG and virtual machines prevent a reset, as does each that is "
        "unknown. The node must be in the remediator's quarantine. Open device files are checked last, after the "
        "agent closed the GPU.",
        (
            "repair/eligibility.py:refusal",
            "repair/eligibility.py:allocation",
            "repair/reset.py:holders",
            "repair/repairer.py:_not_quarantined",
        ),
        (
            proof(
                f"{REPAIR}test_a_gpu_with_work_or_in_a_virtual_machine_is_never_reset",
                "repair/eligibility.py",
                "return allocation(view, uuid) or gpu_use(view, gpu)",
                "return allocation(view, uuid)",
            ),
            proof(
                f"{REPAIR}test_without_the_kubelets_answer_nothing_is_reset",
                "repair/eligibility.py",
                "if kubelet is not None and kubelet.up is False:",
                "if False:",
            ),
            proof(
                f"{REPAIR}test_another_client_that_nvml_does_not_list_stops_the_reset",
                "repair/reset.py",
                "        if found:\n",
                "        if isinstance(found, str):\n",
            ),
            proof(
                f"{REPAIR}test_a_container_that_does_not_see_the_machines_processes_resets_nothing",
                "repair/reset.py",
                'if text(proc / "2/comm") != "kthreadd":',
                "if False:",
            ),
            proof(
                f"{REPAIR}test_a_node_that_is_not_out_of_service_is_left_alone",
                "repair/repairer.py",
                "if self._config.repair.quarantined_only and not (running and running.quarantined):",
                "if False:",
            ),
        ),
    ),
    Harm(
        67,
        "Two repairers reset one GPU at once, or one resets it again and again.",
        "A lock in `state_dir` admits one. Tries are on disk before a GPU is touched; after `repair.tries` it is "
        "left to a reboot, also by a new process.",
        ("cli/repairer.py:repairer", "repair/repairer.py:_standing", "repair/reset.py:reset"),
        (
            proof(
                "tests/cli/test_repairer.py::test_a_second_repairer_ends_at_once",
                "cli/repairer.py",
                "if not is_alone:",
                "if False:",
            ),
            proof(
                f"{REPAIR}test_after_so_many_tries_it_gives_up_and_says_the_next_step",
                "repair/repairer.py",
                "if len(tries) >= config.tries and",
                "if False and",
            ),
            proof(
                f"{REPAIR}test_the_try_is_on_the_disk_before_anything_is_changed",
                "repair/reset.py",
                "        self._file.write(RepairRecord(under_way=begun, tries=kept))\n",
                "",
            ),
            proof(
                f"{REPAIR}test_what_a_repairer_that_died_had_changed_is_restored",
                "repair/reset.py",
                "if left.persistence and left.boot_id == boot_id:",
                "if False:",
            ),
        ),
    ),
    Harm(
        68,
        "Evidence of a fault fills the disk, takes the agent's memory, or is collected without end.",
        "A process of its own collects it, at lowest priority, with limits of memory, file and time, and not on a "
        "nearly full disk. A fault has three tries, each on disk before it begins, and one bundle a day.",
        (
            "agent/support_cases.py:keep_case",
            "agent/support_cases.py:_due",
            "agent/support_cases.py:_make",
            "agent/support_cases.py:kept_cases",
            "cli/diagnose/support_case.py:step_back",
        ),
        (
            proof(
                f"{CASES}test_nothing_is_begun_when_little_of_the_disk_is_free",
                "agent/support_cases.py",
                "if (free := shutil.disk_usage(folder).free) < MIN_FREE:",
                "if (free := shutil.disk_usage(folder).free) < 0:",
            ),
            proof(
                f"{CASES}test_an_agent_that_dies_with_its_bundle_does_not_repeat_it_for_ever",
                "agent/support_cases.py",
                "if last is None or last.tries < TRIES:",
                "if True:",
            ),
            proof(
                f"{CASES}test_a_folder_that_is_a_link_gets_nothing",
                "agent/support_cases.py",
                "        make_private(folder)\n",
                "        folder.mkdir(exist_ok=True)\n",
            ),
            proof(
                f"{CASES}test_cases_are_deleted_by_age_and_number_and_nothing_else_is",
                "agent/support_cases.py",
                "if CASE.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):",
                "if stat.S_ISREG(status.st_mode):",
            ),
            proof(
                f"{CASES}test_its_files_and_its_memory_are_bounded",
                "cli/diagnose/support_case.py",
                "    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))\n",
                "",
            ),
        ),
    ),
    Harm(
        69,
        "The device plugin is restarted in a loop or at the wrong moment, and offers sick GPUs again.",
        "Only the configured DaemonSet's pod is evicted: on a node in service, after the recovery hold, while only "
        "the plugin's list is wrong, at most once in two days, and only if it is older than a day and than the "
        "finding.",
        ("remediation/planning/device_plugin.py:restart_plugin",),
        (
            proof(
                f"{PODS}test_a_device_plugin_is_not_restarted_in_a_loop",
                "remediation/planning/device_plugin.py",
                "name in inputs.memory.announced, ",
                "False, ",
            ),
            proof(
                f"{PLUGIN}test_one_that_counts_it_out_again_is_restarted_once_in_two_days_at_most",
                "remediation/planning/device_plugin.py",
                "min(*found.values(), now - MIN_AGE)",
                "min(found.values())",
            ),
            proof(
                f"{PLUGIN}test_a_plugin_that_continues_counting_it_out_is_left_to_a_person",
                "remediation/planning/device_plugin.py",
                "min(*found.values(), now - MIN_AGE)",
                "now - MIN_AGE",
            ),
            proof(
                f"{PLUGIN}test_a_plugin_that_could_give_away_a_sick_gpu_is_left_alone",
                "remediation/planning/device_plugin.py",
                "bool(others) or ",
                "",
            ),
            proof(
                f"{PLUGIN}test_a_plugin_that_could_give_away_a_sick_gpu_is_left_alone",
                "remediation/planning/device_plugin.py",
                "bool(others) or set(view.attribution.withheld) != set(found)",
                "bool(others)",
            ),
            proof(
                f"{PLUGIN}test_all_must_have_been_well_for_the_hold",
                "remediation/planning/device_plugin.py",
                "inputs.observation.clean_for < hold",
                "False",
            ),
            proof(
                f"{PLUGIN}test_no_other_pod_is_taken_for_it",
                "remediation/planning/device_plugin.py",
                '(namespace, "DaemonSet", daemon_set)',
                "(namespace, pod.controller, daemon_set)",
            ),
        ),
    ),
)
