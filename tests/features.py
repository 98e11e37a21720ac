"""What users of terminal chat programs look for, whether it is here, and the tests that show it.

The rows are those of a comparison of nine programs: elia, oterm, toad, parllama, aichat, llm, ollama, llama.cpp and
LM Studio. README's section "Features" says the same in short; tests/test_features.py holds both to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """One row. With `tests` (node ids below tests/) it is here; without, `reason` says why it is not."""

    name: str
    tests: tuple[str, ...] = ()
    reason: str = ""

    @property
    def here(self) -> bool:
        return bool(self.tests)


FEATURES: dict[str, tuple[Feature, ...]] = {
    "Replies": (
        Feature(
            "streaming markdown",
            (
                "render/test_stream.py::test_ends_equal_to_one_shot",
                "ui/test_transcript.py::test_a_streamed_reply_ends_as_the_one_shot_render",
            ),
        ),
        Feature(
            "cancel generation",
            (
                "ui/test_replies.py::test_escape_stops_and_keeps_what_was_written",
                "engine/test_cancel.py::test_cancel_while_the_prompt_is_read",
                "engine/test_cancel.py::test_cancel_while_the_slots_are_filled",
            ),
        ),
        Feature(
            "partial answer kept on cancel",
            (
                "ui/test_replies.py::test_escape_stops_and_keeps_what_was_written",
                "ui/test_replies.py::test_quitting_while_a_reply_runs_stores_it_as_stopped",
            ),
        ),
        Feature(
            "continue a cut answer",
            (
                "ui/test_turns.py::test_a_reply_that_was_cut_off_goes_on",
                "engine/test_go_on.py::test_a_reply_cut_off_goes_on_as_if_it_had_not_been",
            ),
        ),
        Feature("edit and resend", ("ui/test_turns.py::test_edit_and_resend_makes_a_branch",)),
        Feature("regenerate", ("ui/test_turns.py::test_regenerate_keeps_the_other_reply",)),
        Feature(
            "branches kept as a tree",
            ("ui/test_turns.py::test_a_stored_chat_shows_its_branches", "sessions/test_store.py::test_branches"),
        ),
        Feature(
            "fork a chat",
            (
                "ui/test_turns.py::test_a_fork_is_a_chat_of_its_own",
                "sessions/test_library.py::test_a_fork_has_all_of_its_branch_and_nothing_else",
            ),
        ),
        Feature(
            "thinking folded",
            (
                "ui/test_transcript.py::test_thinking_is_live_and_folds_when_the_reply_begins",
                "ui/test_small_parts.py::test_the_engine_gets_alternating_turns_without_thinking",
            ),
        ),
    ),
    "Chats": (
        Feature(
            "several sessions in a list",
            (
                "ui/test_library.py::test_the_list_groups_filters_and_pins",
                "ui/test_chats.py::test_switching_chats_while_a_reply_runs",
            ),
        ),
        Feature(
            "search over history",
            (
                "ui/test_library.py::test_a_search_goes_to_the_message_in_its_branch",
                "sessions/test_search.py::test_what_is_found",
            ),
        ),
        Feature("rename", ("ui/test_chats.py::test_rename_by_command_and_by_key",)),
        Feature(
            "automatic title",
            (
                "sessions/test_store.py::test_title_from",
                "sessions/test_store.py::test_sending_empties_the_draft_and_keeps_a_given_title",
            ),
        ),
        Feature(
            "export markdown",
            (
                "sessions/test_export.py::test_markdown",
                "sessions/test_export.py::test_the_whole_tree_as_markdown",
                "ui/test_library.py::test_exports_by_command_and_by_choice",
            ),
        ),
        Feature(
            "export JSON",
            (
                "sessions/test_export.py::test_json_holds_the_whole_tree_unchanged",
                "sessions/test_imports.py::test_any_chat_survives_the_round_trip",
            ),
        ),
        Feature("export HTML", ("sessions/test_export.py::test_html_has_all_and_nothing_that_acts",)),
        Feature(
            "import",
            (
                "sessions/test_imports.py::test_chatgpt_branches",
                "sessions/test_imports.py::test_web_ui_forms",
                "ui/test_library.py::test_an_import_is_told_and_listed",
            ),
        ),
        Feature(
            "autosave",
            (
                "ui/test_replies.py::test_the_message_is_on_disk_before_the_engine_sees_it",
                "ui/test_replies.py::test_a_running_reply_is_checkpointed",
                "ui/test_chats.py::test_what_is_typed_is_stored_while_it_is_typed",
            ),
        ),
        Feature(
            "recovery of half an answer after a crash",
            (
                "sessions/test_instances.py::test_kill_while_a_reply_runs",
                "sessions/test_resume.py::test_a_resumed_reply_of_a_program_that_dies_keeps_its_text",
            ),
        ),
    ),
    "Input": (
        Feature("copy a message", ("ui/test_copying.py::test_copy_takes_the_source_of_the_last_reply",)),
        Feature(
            "copy a code block alone",
            (
                "ui/test_selection.py::test_the_picker_of_code_blocks",
                "render/test_compile.py::test_code_blocks_for_copying",
            ),
        ),
        Feature(
            "file attachments",
            (
                "ui/test_prompt_area.py::test_a_file_is_found_attached_and_sent",
                "ui/test_prompt.py::test_a_long_paste_is_attached_and_sent_whole",
            ),
        ),
        Feature(
            "slash commands",
            ("ui/test_actions.py::test_commands", "ui/test_prompt_area.py::test_commands_are_completed"),
        ),
        Feature(
            "prompt history",
            (
                "ui/test_prompt.py::test_up_and_down_at_the_edges_go_through_what_was_sent",
                "ui/test_prompt_area.py::test_what_was_sent_in_earlier_runs_comes_back_with_up",
            ),
        ),
        Feature(
            "external editor",
            ("ui/test_real_terminal.py::test_the_mouse_and_the_editor", "term/test_editor.py::test_edit"),
        ),
        Feature(
            "system prompt editing",
            (
                "ui/test_options.py::test_the_system_prompt_has_several_lines",
                "ui/test_options.py::test_a_prompt_for_all_is_that_of_this_and_of_new_chats",
            ),
        ),
        Feature(
            "sampling parameters",
            (
                "ui/test_options.py::test_values_sources_and_ranges_are_shown",
                "ui/test_options.py::test_the_model_and_all_chats",
                "engine/test_sampler.py::test_every_parameter_of_a_sampler_can_be_chosen",
            ),
        ),
    ),
    "Engine": (
        Feature(
            "model picker",
            (
                "ui/test_models.py::test_a_model_is_chosen_and_loaded",
                "catalog/test_scan.py::test_every_programs_folder_is_known",
            ),
        ),
        Feature(
            "token counts",
            (
                "engine/test_engine.py::test_a_reply_and_its_numbers",
                "ui/test_status_text.py::test_beside_the_panel_it_is_about_the_reply",
            ),
        ),
        Feature("context meter", ("ui/test_status_text.py::test_folded_it_carries_the_panel",)),
        Feature("tok/s", ("ui/test_status_text.py::test_beside_the_panel_it_is_about_the_reply",)),
        Feature(
            "live VRAM and engine counters",
            (
                "ui/test_panel_text.py::test_numbers_of_a_gpu",
                "ui/test_panel_text.py::test_sparklines_follow_the_history",
                "engine/test_telemetry.py::test_rates_are_over_the_last_second",
            ),
        ),
    ),
    "Screen": (
        Feature(
            "themes",
            (
                "ui/test_themes.py::test_ours_load_and_hold_a_dark_and_a_light_one",
                "ui/test_themes.py::test_files_are_read_again_on_command",
            ),
        ),
        Feature(
            "mouse",
            (
                "ui/test_selection.py::test_a_click_selects",
                "ui/test_real_terminal.py::test_the_mouse_and_the_editor",
            ),
        ),
        Feature(
            "command palette",
            ("ui/test_chat_screen.py::test_every_command_of_the_palette_is_an_action",),
        ),
        Feature(
            "keymap customisation",
            (
                "ui/test_keymap.py::test_changed_keys_do_what_they_say",
                "ui/test_keymap.py::test_keys_of_pages_and_lists_can_be_changed",
            ),
        ),
        Feature("vim keys (not in the prompt)", ("ui/test_library.py::test_letters_move_through_a_chat",)),
        Feature("NO_COLOR", ("ui/test_legible.py::test_without_colour_all_can_be_read",)),
        Feature(
            "plain mode for screen readers",
            (
                "plain/test_plain.py::test_a_message_and_its_reply",
                "plain/test_plain.py::test_a_simple_terminal_gets_it_by_itself",
            ),
        ),
        Feature(
            "small-terminal layout",
            (
                "ui/test_chat_screen.py::test_sizes",
                "ui/test_chat_screen.py::test_too_small_says_so_and_nothing_is_lost",
            ),
        ),
        Feature(
            "keys and copy over SSH and tmux",
            (
                "ui/test_tmux_keys.py::test_every_default_key_does_what_its_action_says",
                "term/test_clipboard.py::test_in_tmux_its_buffer_is_filled",
                "term/test_clipboard.py::test_over_ssh_the_far_desktop_is_not_used",
            ),
        ),
    ),
    "Around it": (
        Feature("one-shot questions", ("commands/test_ask.py::test_ask",)),
        Feature(
            "pipes",
            ("commands/test_ask.py::test_ask", "commands/test_ask.py::test_ask_stopped_by_ctrl_c_or_by_its_reader"),
        ),
        Feature(
            "OpenAI-compatible server",
            reason="this is a chat for the person in front of it; llama-server, which comes with llama.cpp, serves "
            "other programs",
        ),
        Feature(
            "tools and MCP",
            reason="a model's words would run programs here; asking first, fencing them in and each template's own "
            "way to call are a project of its own",
        ),
    ),
}
