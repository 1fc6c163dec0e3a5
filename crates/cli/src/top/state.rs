//! What the user has chosen: the pane, the selected object, sorting, a filter, and the page that is open. Keys change it.

use super::filter::Filter;
use super::page::Page;
use super::panes::{node_text, pane};
use super::table::Scroll;
use crate::args;
use kai_engine::verdict::QueueResource;
use kai_view::overview::Overview;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaneKind {
    Queues,
    Nodes,
    Groups,
}

impl PaneKind {
    pub(super) fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Queues => &["tree", "used", "pending", "name"],
            Self::Nodes => &["name", "free", "in use", "status"],
            Self::Groups => &["state", "age", "queue", "priority", "name"],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct PaneView {
    pub(super) scroll: Scroll,
    /// Index among the orders of the pane.
    order: usize,
    pub(super) reversed: bool,
}

pub(crate) struct State {
    /// The command, as the title.
    pub(super) title: &'static str,
    pub(super) cluster: String,
    pub(super) panes: Vec<PaneKind>,
    /// Index among the panes.
    pub(super) focus: usize,
    views: [PaneView; 3],
    pub(super) resource: QueueResource,
    pub(super) pending_only: bool,
    pub(super) filter: Filter,
    /// Only these nodes are shown, if there are any.
    pub(super) names: Vec<String>,
    /// A filter that is being typed.
    pub(super) input: Option<String>,
    pub(super) page: Option<Page>,
    /// There are no panes: the page is the text of a command.
    pub(super) is_text: bool,
    /// The last thing that the user should know.
    pub(super) notice: Option<String>,
}

/// What a key asks for that the state alone cannot give.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// Close the screen.
    Quit,
    /// Stop what runs behind it too.
    Interrupt,
    /// The text of `kai why` for this group.
    Explain(String),
}

impl State {
    pub(crate) fn top(args: &args::Top) -> Self {
        let panes = vec![PaneKind::Queues, PaneKind::Nodes, PaneKind::Groups];
        let filter = Filter::of(args.namespace.as_deref(), args.queue.as_deref());
        Self { filter, pending_only: true, focus: 2, ..Self::new("kai top", panes) }
    }

    /// That of `kai up`.
    #[cfg(feature = "embedded")]
    pub(crate) fn up() -> Self {
        let panes = vec![PaneKind::Queues, PaneKind::Nodes, PaneKind::Groups];
        let mut state = Self { focus: 2, ..Self::new("kai up", panes) };
        state.notice = Some("Ctrl-C stops the cluster; q closes this screen".to_owned());
        state
    }

    pub(crate) fn queues() -> Self {
        Self::new("kai queues", vec![PaneKind::Queues])
    }

    pub(crate) fn jobs(namespace: Option<&str>, queue: Option<&str>) -> Self {
        let filter = Filter::of(namespace, queue);
        Self { filter, ..Self::new("kai jobs", vec![PaneKind::Groups]) }
    }

    pub(crate) fn nodes(names: Vec<String>) -> Self {
        Self { names, ..Self::new("kai nodes", vec![PaneKind::Nodes]) }
    }

    /// The text of a command, which is given later; `of` is what it is about.
    pub(crate) fn text(title: &'static str, of: &str) -> Self {
        let page = Some(Page::text(of.to_owned(), ""));
        Self { page, is_text: true, ..Self::new(title, Vec::new()) }
    }

    fn new(title: &'static str, panes: Vec<PaneKind>) -> Self {
        Self {
            title,
            cluster: String::new(),
            panes,
            focus: 0,
            views: Default::default(),
            resource: QueueResource::Gpu,
            pending_only: false,
            filter: Filter::default(),
            names: Vec::new(),
            input: None,
            page: None,
            is_text: false,
            notice: None,
        }
    }

    pub(super) fn focused(&self) -> PaneKind {
        self.panes.get(self.focus).copied().unwrap_or(PaneKind::Groups)
    }

    pub(super) fn view(&self, kind: PaneKind) -> &PaneView {
        let [queues, nodes, groups] = &self.views;
        match kind {
            PaneKind::Queues => queues,
            PaneKind::Nodes => nodes,
            PaneKind::Groups => groups,
        }
    }

    pub(super) fn view_mut(&mut self, kind: PaneKind) -> &mut PaneView {
        let [queues, nodes, groups] = &mut self.views;
        match kind {
            PaneKind::Queues => queues,
            PaneKind::Nodes => nodes,
            PaneKind::Groups => groups,
        }
    }

    pub(super) fn order(&self, kind: PaneKind) -> &'static str {
        let orders = kind.orders();
        orders.get(self.view(kind).order).copied().unwrap_or_default()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    pub(super) fn press(&mut self, key: KeyEvent, overview: &Overview) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::Interrupt;
        }
        self.notice = None;
        if self.input.is_some() {
            self.type_filter(key);
            return Action::None;
        }
        if let Some(page) = &mut self.page {
            if page.press(key) {
                return Action::None;
            }
            if self.is_text {
                return Action::Quit;
            }
            self.page = None;
            return Action::None;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc => self.filter = Filter::default(),
            KeyCode::Char('?') => self.page = Some(Page::help()),
            KeyCode::Char('/') => self.input = Some(self.filter.text.clone()),
            KeyCode::Tab | KeyCode::Right => self.focus = (self.focus + 1) % self.panes.len(),
            KeyCode::BackTab | KeyCode::Left => {
                self.focus = (self.focus + self.panes.len() - 1) % self.panes.len();
            }
            KeyCode::Char(digit @ '1'..='3') if (digit as usize - '1' as usize) < self.panes.len() => {
                self.focus = digit as usize - '1' as usize;
            }
            KeyCode::Char('s') => {
                let kind = self.focused();
                let view = self.view_mut(kind);
                view.order = (view.order + 1) % kind.orders().len();
            }
            KeyCode::Char('S') => {
                let view = self.view_mut(self.focused());
                view.reversed = !view.reversed;
            }
            KeyCode::Char('r') => {
                self.resource = match self.resource {
                    QueueResource::Gpu => QueueResource::Cpu,
                    QueueResource::Cpu => QueueResource::Memory,
                    QueueResource::Memory => QueueResource::Gpu,
                };
            }
            KeyCode::Char('a') => self.pending_only = !self.pending_only,
            KeyCode::Enter => return self.open(overview),
            code => self.scroll(code, overview),
        }
        Action::None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn scroll(&mut self, code: KeyCode, overview: &Overview) {
        let kind = self.focused();
        let rows = pane(kind, overview, self).table.rows;
        let scroll = &mut self.view_mut(kind).scroll;
        let page = scroll.visible.max(1);
        let index = match code {
            KeyCode::Down | KeyCode::Char('j') => scroll.index + 1,
            KeyCode::Up | KeyCode::Char('k') => scroll.index.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => scroll.index + page,
            KeyCode::PageUp => scroll.index.saturating_sub(page),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => rows.len(),
            _ => return,
        };
        scroll.select(&rows, index);
    }

    /// Opens the selected object: a node and its GPUs, the groups of a queue, or why a group is pending.
    fn open(&mut self, overview: &Overview) -> Action {
        let kind = self.focused();
        let rows = pane(kind, overview, self).table.rows;
        let Some(row) = rows.get(self.view(kind).scroll.index) else { return Action::None };
        let key = row.key.clone();
        match kind {
            PaneKind::Groups => return Action::Explain(key),
            PaneKind::Nodes => {
                let node = overview.nodes.nodes.iter().find(|node| node.name == key);
                self.page = node.map(|node| Page::text(format!("node {key}"), &node_text(node)));
            }
            PaneKind::Queues => {
                self.filter = Filter::read(&format!("queue:{key}"), PaneKind::Queues);
                if let Some(groups) = self.panes.iter().position(|pane| *pane == PaneKind::Groups) {
                    self.focus = groups;
                }
            }
        }
        Action::None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys do nothing")]
    fn type_filter(&mut self, key: KeyEvent) {
        let Some(input) = &mut self.input else { return };
        match key.code {
            KeyCode::Char(letter) => input.push(letter),
            KeyCode::Backspace => {
                input.pop();
            }
            KeyCode::Esc => {
                self.input = None;
                self.filter = Filter::default();
                return;
            }
            KeyCode::Enter => {
                self.filter = Filter::read(&self.input.take().unwrap_or_default(), self.focused());
                return;
            }
            _ => return,
        }
        let text = input.clone();
        self.filter = Filter::read(&text, self.focused());
    }
}
