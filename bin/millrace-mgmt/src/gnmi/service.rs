//! The service of gNMI: each request needs a role.

use std::time::Instant;

use millrace_gnmi::proto::gnmi::g_nmi_server::GNmi;
use millrace_gnmi::proto::gnmi::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, SetRequest, SetResponse,
    SubscribeRequest, SubscribeResponse,
};
use millrace_yang::datastore::{Client, Role};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::clock::nanos;
use super::stream;
use super::tree::Tree;
use crate::switch;

/// The service for one connection.
pub(crate) struct Service {
    tree: Tree,
    client: Option<Client>,
}

impl Service {
    /// Returns the service for a client; `None` is one without a role.
    pub(crate) fn new(tree: Tree, client: Option<Client>) -> Service {
        Service { tree, client }
    }

    fn client(&self, needed: Role) -> Result<&Client, Status> {
        let Some(client) = &self.client else {
            return Err(Status::permission_denied(
                "the client has no role on this switch: a group of the settings' [access], or a name in gnmi.clients",
            ));
        };
        match client.role >= needed {
            true => Ok(client),
            false => Err(Status::permission_denied(format!(
                "{} has the role {}: this needs {}",
                client.name,
                client.role.name(),
                needed.name()
            ))),
        }
    }
}

#[tonic::async_trait]
impl GNmi for Service {
    type SubscribeStream = ReceiverStream<Result<SubscribeResponse, Status>>;

    async fn capabilities(
        &self,
        _: Request<CapabilityRequest>,
    ) -> Result<Response<CapabilityResponse>, Status> {
        self.client(Role::Read)?;
        Ok(Response::new(millrace_gnmi::capabilities()))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.client(Role::Read)?;
        let view = self.tree.read(Instant::now()).await?;
        millrace_gnmi::get(request.get_ref(), &view, nanos()).map(Response::new)
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        let client = self.client(Role::Write)?.clone();
        let rest = self.tree.rest.clone();
        let run = move || {
            let mut store = switch::Session::new(&rest, &client.name);
            millrace_gnmi::set(request.get_ref(), &mut store, nanos())
        };
        let done = tokio::task::spawn_blocking(run).await;
        done.map_err(|_| Status::internal("the change ended"))?
            .map(Response::new)
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.client(Role::Read)?;
        Ok(Response::new(stream::subscribe(
            request.into_inner(),
            self.tree.clone(),
        )))
    }
}
