"""Mistakes that a client may make, and the cases that find them.

`python3 -m conformance.mistakes` makes each in a copy of a client, for tests alone, and runs the
suite against it: a case has to fail. Those of the Python client are made in the memory of its
driver, and those of the Go client in a build of its driver.
"""

from __future__ import annotations

# The cases that have to fail, for each function of `driver.py` and each of the edits in `go.py`.
MISTAKES: dict[str, list[str]] = {
    "ignores_deadlines": [
        "deadline_holds_while_a_request_waits", "deadline_holds_while_connecting",
    ],
    "retries_without_a_wait": ["attempts_have_waits_between_them", "callers_share_the_waits"],
    "gives_up_after_a_failure": [
        "answers_that_are_cut_off_are_asked_for_again",
        "leader_that_is_gone_is_replaced_without_a_failed_call",
    ],
    "repeats_what_was_refused": ["vectors_that_end_the_call"],
    "follows_names_for_ever": [
        "node_that_names_itself_is_not_asked_without_a_wait",
        "nodes_that_name_each_other_are_not_asked_without_a_wait",
    ],
    "follows_urls": ["vectors_that_end_at_another_node", "unusable_members_are_not_asked"],
    "waits_for_an_answer_for_ever": ["answer_that_stalls_is_given_up"],
    "interrupts_connecting": ["short_deadlines_do_not_keep_a_client_from_its_node"],
    "mixes_two_clusters": [
        "node_of_another_cluster_is_not_asked",
        "address_that_moves_to_another_cluster_is_not_asked",
        "named_cluster_is_the_only_one",
    ],
    "accepts_malformed_answers": [
        "malformed_answers_of_all_nodes_end_at_the_deadline", "vectors_that_end_at_another_node",
        "vectors_of_64_bits_are_read_and_checked",
    ],
    "accepts_what_went_backwards": ["timestamp_that_is_not_above_the_last_is_an_error"],
    "joins_a_sent_request": ["call_joins_no_request_that_was_sent"],
    "keeps_left_over_timestamps": ["left_over_timestamps_are_not_kept"],
    "sends_a_request_for_each_caller": ["concurrent_callers_share_few_requests"],
    "queues_without_a_bound": ["callers_beyond_the_queue_are_refused"],
    "cancels_the_callers_of_a_request": ["cancelled_call_in_flight_disturbs_no_other"],
    "sends_the_token_along": ["token_is_sent_with_changes_alone"],
    "repeats_changes": ["change_that_may_have_been_made_is_not_repeated"],
    "does_not_verify_hosts": [
        "certificate_for_another_host_is_not_trusted", "named_leader_is_verified_too",
    ],
    "does_not_verify_certificates": [
        "node_of_an_unknown_authority_is_not_trusted",
        "certificate_that_has_ended_is_not_trusted",
    ],
    "falls_back_to_plain": ["plain_node_is_not_asked_over_https"],
    "reads_files_once": ["renewed_files_are_used_by_new_connections"],
    "has_an_order_for_each_width": ["timestamps_of_both_widths_are_in_one_order"],
    "shares_requests_between_widths": ["callers_of_different_widths_share_no_request"],
    "asks_after_the_deadline": ["deadline_that_has_passed_sends_nothing"],
    "counts_callers_that_have_left": ["callers_that_have_left_make_room_in_the_queue"],
    "sends_no_ping": ["silent_connection_is_probed"],
    "goes_back_to_a_failed_leader": ["leader_that_has_just_failed_is_not_asked_again_at_once"],
    "takes_options_out_of_bounds": ["options_out_of_bounds_are_refused"],
    "compares_with_later_answers": ["answers_of_two_requests_may_cross"],
}  # fmt: skip
